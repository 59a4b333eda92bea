#!/usr/bin/env python3
"""Write golden.json: what transformers makes of the demo's template.

    pip install transformers==5.15.1 jinja2==3.1.6
    python3 testdata/generate.py

The conversations are those of tests/parity/templates/cases.py.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile

from transformers.utils.chat_template_utils import render_jinja_template

here = os.path.dirname(os.path.abspath(__file__))
template = open(here + "/../../demo/chat_template.jinja", encoding="utf-8").read()
with tempfile.TemporaryDirectory() as tmp:
    subprocess.run(
        [sys.executable, here + "/../../../tests/parity/templates/cases.py", tmp + "/cases.json"], check=True, capture_output=True
    )
    cases = json.load(open(tmp + "/cases.json", encoding="utf-8"))["cases"]
golden = []
for name, c in cases.items():
    if "long" in name:
        continue  # 50 KB that show nothing new
    g = {
        "name": name,
        "messages": c["messages"],
        "tools": c["tools"],
        "generate": c["add_generation_prompt"],
        "continue": c["continue_final_message"],
        "kwargs": c["kwargs"],
    }
    try:
        texts, _ = render_jinja_template(
            [copy.deepcopy(c["messages"])],
            tools=c["tools"],
            chat_template=template,
            continue_final_message=c["continue_final_message"],
            add_generation_prompt=c["add_generation_prompt"],
            **c["kwargs"]
        )
        g["text"] = texts[0]
    except Exception:
        g["raises"] = True
    golden.append(g)
with open(here + "/golden.json", "w", encoding="utf-8") as f:
    json.dump(golden, f, ensure_ascii=False, indent=1)
    f.write("\n")
print(len(golden), "conversations,", sum("raises" in g for g in golden), "raise")
