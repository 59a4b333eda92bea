#!/usr/bin/env python3
"""Write golden.json: what the original libraries make of small tokenizers.

    pip install tokenizers==0.22.2 tiktoken==0.14.0 mistral-common==1.13.1
    python3 testdata/generate.py

All are made from the vocabulary of tokenizer/demo, with other settings around
it, so that every pattern, normalizer and file format is there.
"""

import base64
import json
import os
import random
import tempfile

import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Tokenizer

os.chdir(os.path.dirname(os.path.abspath(__file__)))
demo = json.load(open("../../demo/files/tokenizer.json", encoding="utf-8"))
R = random.Random(4)

PHRASES = [
    "The quick brown fox doesn't jump; it'll WALK, won't it? I'M SURE they'Ve said we'D go.",
    "日本語のテキストと漢字かな交じり文、句読点。「引用」も。",
    "中文文本，包含标点符号、数字123和英文words混排。",
    "한국어 문장과 띄어쓰기, 그리고 숫자 2024년.",
    "Привет, мир! Это тест — с тире и «кавычками».",
    "مرحبا بالعالم، هذا نصٌّ مُشَكَّل ١٢٣٤٥.",
    "हिन्दी में एक वाक्य, संयुक्ताक्षर क्ष त्र ज्ञ।",
    "Tiếng Việt có dấu: ằ ẳ ẵ ặ ễ ệ ỗ ộ",
    "Ünïcödé naïve façade ﬁ ﬂ Ⅷ ① ½ ²³",
    "👩‍👩‍👧‍👦🇨🇭👍🏽🧑🏿‍🚀 emoji",
    "e\u0301 a\u030a o\u0308\u0323 \u1e9b\u0323 \u212b \u2126 \uac00 \u1100\u1161\u11a8",
    '{"a": [1, 2.50, -3e-10], "b": null}\r\n\r\n\t"x\\ny"',
    "https://example.com/a?b=c&d=%20e#f user@host.tld v1.2.3-rc.1",
    "1234567890 12 345 6789 1,000,000 3.14159 0xdeadBEEF",
    "if (x != null && y >= 0) { return x->z[i++] * ~y; } // TODO",
    "    \t  indented\n\n\n      more\r\n\r\n   trailing   \n ",
    "'s 'S 'll 'LL '\u017f 'K 'RE 've 't 'T's''s d'd",
    "_under_score__ CamelCaseXMLHttp kebab-case SCREAMING_CASE $dollar @at #hash",
    "a\u0000b\u001c\u0085c\u3000d\u200be\ufefff",
    "ᾳ ǅ ʰa ªb 々〇〡⺀漢",
]
PIECES = [
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<|im_",
    "|>",
    "<",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    "\u3000",
    "\u00a0",
    "'s",
    "'",
    "/",
    "//",
    "!",
    "123",
    "1",
    "é",
    "e\u0301",
    "\u0301",
    "中",
    "かな",
    "ABC",
    "abC",
    "Ab",
    "_",
    "...",
    "▁",
    "▁▁",
    "\U0001f600",
    "ﬁ",
    "가",
    "\u1161",
]
AROUND = ["a \n<|im_end|>\n\n b", "<|im_end|> <think> <tool_call>  </think>\u3000<tool_call>", " <think>", "<|im_end|> ", "x\u00a0<tool_call>\u2003<|im_end|>y"]
texts = PHRASES + AROUND + [""] + ["".join(R.choice(PIECES) for _ in range(R.randrange(1, 14))) for _ in range(90)]

DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + END
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + END
O200K = WORDS % ("*", "+") + CONTRACTIONS + "?|" + WORDS % ("+", "*") + CONTRACTIONS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END
TEKKEN = WORDS % ("*", "+") + "|" + WORDS % ("+", "*") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END
NOT_HAN = r"&&[^\p{Han}]]"
KIMI = r"[\p{Han}]+|" + O200K.replace(r"\p{M}]", r"\p{M}" + NOT_HAN).replace("[\\r\\n/]*", "[\\r\\n]*")


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def pre(*steps, use_regex=False):
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "Sequence", "pretokenizers": [*steps, last]} if steps else last


def characters(prefixed, joined):
    """A small SentencePiece-like vocabulary: bytes, characters, some merges."""
    vocab = {"<unk>": 0, "<s>": 1}
    for b in range(256):
        vocab["<0x%02X>" % b] = len(vocab)
    merges = []
    words = ["▁the", "▁in", "▁▁", "▁▁▁▁", "ing", "▁qu", "ick", "日本", "12", "é"] + ([">▁<"] if joined else [])
    for c in "▁" + "".join(sorted({c for w in words for c in w} | set("abcdefghijklmnopqrstuvwxyz<>|_-/,.é中ABC'"))):
        vocab.setdefault(c, len(vocab))
    for w in words:
        left = w[0]
        for c in w[1:]:
            if left + c not in vocab:
                vocab[left + c] = len(vocab)
                merges.append([left, c])
            left += c
    merges.append(["▁▁", "▁▁"])
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if prefixed:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 0, "content": "<unk>", **added},
            {"id": 1, "content": "<s>", **added},
            {"id": len(vocab), "content": "<think>", **added},
            {"id": len(vocab) + 1, "content": "\n\n", **added},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]} if prefixed else replace,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


normalized = [dict(a, normalized=a["content"] in ("<think>", "</think>")) for a in demo["added_tokens"]]
stripped = [
    dict(a, rstrip=a["content"] in ("<|im_end|>", "<tool_call>"), lstrip=a["content"] in ("<think>", "<tool_call>")) for a in demo["added_tokens"]
]
patches = {
    "qwen3": {},
    "cl100k": {"normalizer": None, "pre_tokenizer": pre(split(CL100K, "Removed", True))},
    "qwen3.5": {"pre_tokenizer": pre(split(QWEN35))},
    "o200k": {"normalizer": {"type": "Sequence", "normalizers": []}, "pre_tokenizer": pre(split(O200K))},
    "gpt2": {"pre_tokenizer": pre(use_regex=True)},
    "digits": {"normalizer": None, "pre_tokenizer": pre({"type": "Digits", "individual_digits": True}, use_regex=True)},
    "digits in runs": {"pre_tokenizer": pre({"type": "Digits", "individual_digits": False}, split(O200K))},
    "deepseek": {"normalizer": None, "pre_tokenizer": pre(*map(split, DEEPSEEK))},
    "normalized added tokens": {"added_tokens": normalized},
    "stripped added tokens": {"added_tokens": stripped},
    "whole words": {"model": dict(demo["model"], ignore_merges=True, merges=demo["model"]["merges"][:2000])},
}
golden = {"texts": texts, "patched": [], "whole": []}
decoded_ids = [[R.randrange(len(demo["model"]["vocab"]) + 9) for _ in range(R.randrange(1, 9))] for _ in range(40)]
for name, patch in patches.items():
    tok = Tokenizer.from_str(json.dumps(dict(demo, **patch)))
    if name == "whole words":
        patch = {"ignore_merges": True, "merges": 2000}
    golden["patched"].append(
        {
            "name": name,
            "patch": patch,
            "ids": [tok.encode(t, add_special_tokens=False).ids for t in texts],
            "decoded": [tok.decode(x, skip_special_tokens=False) for x in decoded_ids],
        }
    )
golden["decode"] = decoded_ids
for name, definition in {
    "characters": characters(False, False),
    "characters joined": characters(False, True),
    "characters prefixed": characters(True, False),
}.items():
    tok = Tokenizer.from_str(json.dumps(definition))
    decode = [[R.randrange(tok.get_vocab_size()) for _ in range(R.randrange(1, 9))] for _ in range(40)]
    golden["whole"].append(
        {
            "name": name,
            "definition": definition,
            "ids": [tok.encode(t, add_special_tokens=False).ids for t in texts],
            "decode": decode,
            "decoded": [tok.decode(x, skip_special_tokens=False) for x in decode],
        }
    )

# Rank files: the demo's tokens in the order of their merges, which are ranks.
visible = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None for b in range(256)]
moved = iter(range(256, 512))
byte_of = {c if c else chr(next(moved)): b for b, c in enumerate(visible)}
raw = {i: bytes(byte_of[c] for c in t) for t, i in demo["model"]["vocab"].items()}
ranks = {raw[i]: i for i in sorted(raw)}
special = {"[BOS]": len(ranks), "<think>": len(ranks) + 1}
kimi = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
golden["tiktoken"] = {"pattern": KIMI, "added": special, "ids": [kimi.encode(t, allowed_special="all") for t in texts]}
first = sorted(ranks, key=lambda t: (len(t) > 1, t if len(t) == 1 else b"", ranks[t]))  # bytes must come first
tekken = {
    "config": {
        "pattern": TEKKEN,
        "num_vocab_tokens": len(first),
        "default_vocab_size": len(first) + 80,
        "default_num_special_tokens": 100,
        "version": "v3",
    },
    "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(first)],
}
with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
    json.dump(tekken, f)
    f.flush()
    mistral = Tekkenizer.from_file(f.name)
golden["tekken"] = {
    "special": [t["token_str"] for t in mistral._all_special_tokens],
    "ids": [mistral.encode(t, False, False) for t in texts],
}
with open("golden.json", "w", encoding="utf-8") as f:
    json.dump(golden, f, ensure_ascii=False, separators=(",", ":"))
    f.write("\n")
print(len(texts), "texts,", os.path.getsize("golden.json"), "bytes")
