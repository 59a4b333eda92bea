#!/usr/bin/env python3
"""Ids of a corpus from mistral-common: oracle_mistral.py TEKKEN_JSON CORPUS OUT"""

import json
import logging
import sys

logging.disable(logging.WARNING)
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

tok = Tekkenizer.from_file(sys.argv[1])
with open(sys.argv[3], "w") as f:
    n = 0
    for line in open(sys.argv[2], encoding="utf-8"):
        f.write(json.dumps(tok.encode(json.loads(line)["t"], bos=False, eos=False)) + "\n")
        n += 1
print(n, "texts")
