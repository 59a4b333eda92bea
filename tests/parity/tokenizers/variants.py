#!/usr/bin/env python3
"""Write a tokenizer.json with other settings around its model: variants.py TOKENIZER_JSON FOLDER

For settings that models use of which no package ships the vocabulary.
"""

import json
import os
import sys

source, folder = sys.argv[1:]
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def sequence(*steps, use_regex):
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "Sequence", "pretokenizers": [*steps, last]}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


split = {"type": "Split", "pattern": {"Regex": O200K}, "behavior": "Isolated", "invert": False}
variants = {
    # SmolLM, StarCoder 2, Granite.
    "digits": {"normalizer": None, "pre_tokenizer": sequence(digits(True), use_regex=True)},
    "digit-runs": {"pre_tokenizer": sequence(digits(False), split, use_regex=False)},
}
definition = json.load(open(source, encoding="utf-8"))
os.makedirs(folder, exist_ok=True)
for name, patch in variants.items():
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as out:
        json.dump({**definition, **patch}, out, ensure_ascii=False)
