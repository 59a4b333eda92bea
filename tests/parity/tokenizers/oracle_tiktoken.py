#!/usr/bin/env python3
"""Ids of a corpus from tiktoken: oracle_tiktoken.py RANKS PATTERN CORPUS OUT [CONFIG]

PATTERN names one of the patterns below. With CONFIG, its added tokens are found
in the text, as Kimi's tokenizer does; without, none are.
"""

import base64
import json
import sys

import tiktoken

END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s" + CONTRACTIONS + "?"
O200K = WORDS % ("*", "+") + "|" + WORDS % ("+", "*") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END
PATTERNS = {
    "o200k": O200K,
    "kimi": r"[\p{Han}]+|" + O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(r"[\r\n/]*", r"[\r\n]*"),
    "qwen": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + END,
    "qwen35": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + END,
}

ranks_file, pattern, corpus, out = sys.argv[1:5]
ranks = {}
for line in open(ranks_file, "rb"):
    if line.strip():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
special = {}
if len(sys.argv) > 5:
    config = json.load(open(sys.argv[5], encoding="utf-8"))
    special = {a["content"]: int(i) for i, a in config["added_tokens_decoder"].items()}
enc = tiktoken.Encoding("x", pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens=special)
with open(out, "w") as f:
    n = 0
    for line in open(corpus, encoding="utf-8"):
        text = json.loads(line)["t"]
        f.write(json.dumps(enc.encode(text, allowed_special="all") if special else enc.encode_ordinary(text)) + "\n")
        n += 1
print(n, "texts")
