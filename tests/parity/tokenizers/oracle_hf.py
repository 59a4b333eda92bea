#!/usr/bin/env python3
"""Ids of a corpus from Hugging Face tokenizers: oracle_hf.py TOKENIZER_JSON CORPUS OUT [DECODE_OUT]

CORPUS has one JSON object {"k": kind, "t": text} a line, OUT gets one JSON array
a line. DECODE_OUT gets [ids, text] for slices of these arrays and random ids.
"""

import json
import random
import sys
import time

from tokenizers import Tokenizer

tok = Tokenizer.from_file(sys.argv[1])
tok.no_truncation()
tok.no_padding()
texts = [json.loads(line)["t"] for line in open(sys.argv[2], encoding="utf-8")]
start = time.perf_counter()
ids = []
for i in range(0, len(texts), 64):
    ids += [e.ids for e in tok.encode_batch_fast(texts[i : i + 64], add_special_tokens=False)]
seconds = time.perf_counter() - start
with open(sys.argv[3], "w") as out:
    for x in ids:
        out.write(json.dumps(x) + "\n")
if len(sys.argv) > 4:
    r = random.Random(11)
    size = tok.get_vocab_size(with_added_tokens=True)
    with open(sys.argv[4], "w") as out:
        for n in range(6000):
            if n % 2:
                x = r.choice(ids)
                at = r.randrange(len(x) + 1)
                x = x[at : at + r.randrange(1, 13)]
            else:
                x = [r.randrange(size) for _ in range(r.randrange(1, 11))]
            out.write(json.dumps([x, tok.decode(x, skip_special_tokens=False)]) + "\n")
print(f"{len(texts)} texts, {sum(len(t.encode()) for t in texts) / 1e6 / seconds:.2f} MB/s")
