#!/usr/bin/env python3
"""Write a corpus of code points: codepoints.py OUT [STEP]

Every STEP-th code point of planes 0 to 3 and samples of the others, in contexts
that show its class in a pattern; every canonical decomposition; random
sequences of marks, which show how they are ordered and composed; characters
that newer Unicode versions added.
"""

import json
import random
import sys
import unicodedata

R = random.Random(7)
step = int(sys.argv[2]) if len(sys.argv) > 2 else 1
every = [c for c in range(0x40000) if not 0xD800 <= c <= 0xDFFF]
every += list(range(0xE0000, 0xE0200)) + R.sample(range(0x40000, 0xE0000), 400) + R.sample(range(0xE0200, 0x110000), 400)
some = every[::step]
NEW = [
    (0x105D2, 0x307),
    (0x105DA, 0x307),
    (0x11382, 0x113C9),
    (0x11384, 0x113BB),
    (0x1138B, 0x113C2),
    (0x11390, 0x113C9),
    (0x113C2, 0x113C2),
    (0x113C2, 0x113B8),
    (0x113C2, 0x113C9),
    (0x1611E, 0x1611E),
    (0x1611E, 0x16129),
    (0x1611E, 0x1611F),
    (0x16129, 0x1611F),
    (0x1611E, 0x16120),
    (0x16121, 0x1611F),
    (0x16122, 0x1611F),
    (0x16121, 0x16120),
    (0x16D67, 0x16D67),
    (0x16D63, 0x16D67),
    (0x16D69, 0x16D67),
    (0x11935, 0x11930),
]
with open(sys.argv[1], "w") as f:

    def write(kind, text):
        f.write(json.dumps({"k": kind, "t": text}) + "\n")

    for i in range(0, len(some), 16):
        write("class", "".join(f"a{c}b 1{c}2 {c}{c}.{c}!'{c}x\n{c}  {c}" for c in map(chr, some[i : i + 16])))
    for pair in NEW:
        write("new", "x" + "".join(map(chr, pair)) + "y")
    decomposed = [unicodedata.normalize("NFD", chr(c)) for c in every if unicodedata.normalize("NFD", chr(c)) != chr(c)]
    for i in range(0, len(decomposed), 16):
        write("compose", " ".join("q" + s + "z" for s in decomposed[i : i + 16]))
    marks = [c for c in every if unicodedata.combining(chr(c))]
    bases = [ord(x) for x in "aeouAEOnsc가각"] + [0x1100, 0x1161, 0x11A8, 0x915, 0x9C7, 0xB47, 0x1025, 0x3B1, 0x439, 0x5D0, 0x627]
    for _ in range(6000 // step):
        write("marks", "".join(chr(R.choice(bases)) + "".join(chr(R.choice(marks)) for _ in range(R.randrange(0, 5))) for _ in range(6)))
    late = [c for c in range(0x300, 0x20000) if not 0xD800 <= c <= 0xDFFF and unicodedata.category(chr(c)) == "Cn"]
    for i in range(0, len(late), 32):
        write("late", "".join("a" + chr(c) + "\u0323\u0301" for c in late[i : i + 32]))
