#!/usr/bin/env python3
"""Write a corpus for tokenizers, one JSON object {"k": kind, "t": text} a line: corpus.py OUT SEED GOROOT [TEXTS...]

Real files from the Go tree, Python's library and the folders TEXTS; sentences in
many scripts; special tokens whole and cut; white space of every kind; random
Unicode; random bytes decoded with replacement; long runs.
"""

import glob
import json
import os
import random
import sys

out, seed, goroot = sys.argv[1], int(sys.argv[2]), sys.argv[3]
R = random.Random(seed)
docs = []


def add(kind, text):
    docs.append((kind, text))


def files(patterns, n, size, kind):
    found = sorted(f for p in patterns for f in glob.glob(p, recursive=True))
    R.shuffle(found)
    for f in found[:n]:
        try:
            text = open(f, encoding="utf-8", newline="").read()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            at = R.randrange(max(1, len(text) - size + 1))
            add(kind, text[at : at + size])


files([goroot + "/src/**/*.go"], 400, 6000, "go")
files([os.path.dirname(os.__file__) + "/**/*.py"], 400, 6000, "python")
files([goroot + "/doc/**/*", goroot + "/src/**/testdata/*"], 120, 4000, "data")
for folder in sys.argv[4:]:
    files([folder + "/**/*.jinja", folder + "/**/*.md", folder + "/**/*.js", folder + "/**/*.ts"], 200, 5000, "packages")
PHRASES = [
    "The quick brown fox doesn't jump; it'll WALK, won't it? I'M SURE they'Ve said we'D go.",
    "日本語のテキストと漢字かな交じり文、句読点。「引用」も。",
    "中文文本，包含标点符号、数字123和英文words混排。",
    "한국어 문장과 띄어쓰기, 그리고 숫자 2024년.",
    "Привет, мир! Это тест — с тире и «кавычками».",
    "مرحبا بالعالم، هذا نصٌّ مُشَكَّل ١٢٣٤٥.",
    "हिन्दी में एक वाक्य, संयुक्ताक्षर क्ष त्र ज्ञ।",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "Tiếng Việt có dấu: ằ ẳ ẵ ặ ễ ệ ỗ ộ",
    "Ελληνικά: αβγδ ΑΒΓΔ ώ ΐ",
    "עברית: שלום עולם",
    "Ünïcödé naïve façade ﬁ ﬂ ﬃ Ⅷ ① ½ ²³",
    "👩‍👩‍👧‍👦🇨🇭👍🏽🧑🏿‍🚀 emoji 😀😃😄",
    "𝕸𝖆𝖙𝖍 𝒜𝓁𝓅𝒽𝒶 𝟘𝟙𝟚 𐍈 𒀀",
    "e\u0301 a\u030a o\u0308\u0323 \u1e9b\u0323 \u212b \u2126 \uac00 \u1100\u1161\u11a8",
    '{"a": [1, 2.50, -3e-10], "b": null}\r\n\r\n\t"x\\ny"',
    "https://example.com/a?b=c&d=%20e#f user@host.tld v1.2.3-rc.1+build.5",
    "1234567890 12 345 6789 1,000,000 3.14159 0xdeadBEEF 1e10",
    "if (x != null && y >= 0) { return x->z[i++] * ~y; } // TODO: fix\n",
    "    \t  indented\n\n\n      more\r\n\r\n   trailing   \n ",
    "'s 'S 'll 'LL '\u017f 'K 'RE 've 't 'T's''s d'd",
    "_under_score__ CamelCaseXMLHttp kebab-case SCREAMING_CASE $dollar @at #hash",
]
for p in PHRASES:
    add("phrase", p)
SPECIAL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<｜begin▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>",
    "<bos>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|start|>",
    "<|message|>",
    "<|channel|>",
    "<|end|>",
    "<|return|>",
    "<|vision_start|>",
    "<|image_pad|>",
    "<|fim_prefix|>",
    "<|box_start|>",
    "<s>",
    "</s>",
    "[INST]",
    "[BOS]",
    "<|im_start",
    "|im_end|>",
    "<tool_call",
    "<unk>",
    "<pad>",
    "\n\n\n",
    "\t\t",
]
for _ in range(1500):
    parts = []
    for _ in range(R.randrange(2, 12)):
        c = R.random()
        if c < 0.45:
            parts.append(R.choice(SPECIAL))
        elif c < 0.8:
            p = R.choice(PHRASES)
            i = R.randrange(len(p))
            parts.append(p[i : i + R.randrange(1, 30)])
        else:
            parts.append(R.choice([" ", "  ", "\n", "\n\n", "\t", "", " \n", "\r\n", "\u3000", "\u00a0"]) * R.randrange(0, 4))
    add("special", "".join(parts))
SPACES = [
    " ",
    "\t",
    "\n",
    "\r",
    "\x0b",
    "\x0c",
    "\u0085",
    "\u00a0",
    "\u1680",
    "\u2000",
    "\u2003",
    "\u2009",
    "\u200a",
    "\u2028",
    "\u2029",
    "\u202f",
    "\u205f",
    "\u3000",
    "\u200b",
    "\ufeff",
    "\x1c",
    "\x1f",
    "\x00",
]
for _ in range(1500):
    add(
        "space",
        "".join(
            (
                R.choice(SPACES if R.random() < 0.6 else [" ", "\n"]) * R.randrange(1, 5)
                if R.random() < 0.7
                else R.choice(["a", "Z", "1", ".", "é", "中", "'s", "_", "``", "(", "\u0301"])
            )
            for _ in range(R.randrange(1, 40))
        ),
    )
MARKS = [0x300, 0x301, 0x308, 0x323, 0x30A, 0x5B0, 0x64B, 0x93C, 0x94D, 0xE31, 0xFE0F, 0x200D, 0x1161, 0x11A8, 0x3099, 0x1F3FD]
for _ in range(2500):
    text = []
    for _ in range(R.randrange(1, 80)):
        c = R.random()
        if c < 0.25:
            cp = R.randrange(0x20, 0x7F)
        elif c < 0.5:
            cp = R.randrange(0xA0, 0x3000)
        elif c < 0.7:
            cp = R.randrange(0x3000, 0xD800)
        elif c < 0.8:
            cp = R.randrange(0xE000, 0x10000)
        elif c < 0.9:
            cp = R.randrange(0x10000, 0x20000)
        else:
            cp = R.choice(MARKS)
        text.append(chr(cp))
    add("random", "".join(text))
for _ in range(1500):
    add("bytes", bytes(R.randrange(256) for _ in range(R.randrange(1, 120))).decode("utf-8", "replace"))
for _ in range(600):
    unit = R.choice(["a", "ab", "=", "-", " ", "\n", "\u00e9", "中", "1", "!?", "\t ", "xX", "\u0301", "ab1 ", "/*"])
    add("runs", unit * R.randrange(1, 400) + R.choice(["", " ", "\n", "x"]))
for _ in range(400):
    add("mix", " ".join(R.choice(PHRASES) for _ in range(R.randrange(1, 6))))
R.shuffle(docs)
with open(out, "w", encoding="utf-8") as f:
    for kind, text in docs:
        f.write(json.dumps({"k": kind, "t": text}) + "\n")
print(len(docs), "texts,", sum(len(t.encode()) for _, t in docs), "bytes")
