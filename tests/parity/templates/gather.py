#!/usr/bin/env python3
"""Collect chat templates: gather.py PACKAGES OUT [MORE...]

Takes every *.jinja and *.jinja2, and the chat_template of every
tokenizer_config.json, under PACKAGES and the folders MORE, once each, and writes
OUT/<package>__<name>.jinja.
"""

import hashlib
import json
import os
import re
import sys

packages, out = sys.argv[1:3]
seen = set()


def add(package, name, text):
    # A template without messages is a part of something else.
    digest = hashlib.sha256(text.encode()).hexdigest()
    if "messages" not in text or digest in seen:
        return
    seen.add(digest)
    base = re.sub(r"[^A-Za-z0-9._+-]", "-", f"{package}__{name}")
    if os.path.exists(f"{out}/{base}.jinja"):
        base += "-" + digest[:6]
    with open(f"{out}/{base}.jinja", "w", encoding="utf-8", newline="") as f:
        f.write(text)


def walk(root, package_depth):
    for folder, dirs, files in os.walk(root):
        dirs.sort()
        rel = os.path.relpath(folder, root).split(os.sep)
        package = "-".join(rel[:package_depth]) if package_depth else os.path.basename(root)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if name.endswith((".jinja", ".jinja2")):
                add(package, re.sub(r"\.jinja2?$", "", name), open(path, encoding="utf-8", errors="replace", newline="").read())
            elif name == "tokenizer_config.json":
                template = json.load(open(path, encoding="utf-8")).get("chat_template")
                named = template if isinstance(template, list) else [{"name": os.path.basename(folder), "template": template}]
                for t in named:
                    if isinstance(t["template"], str):
                        add(package, t["name"], t["template"])


os.makedirs(out, exist_ok=True)
for old in os.listdir(out):
    os.remove(os.path.join(out, old))
walk(packages, 3)
for more in sys.argv[3:]:
    walk(os.path.abspath(more), 0)
print(len(seen))
