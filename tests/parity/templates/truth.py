#!/usr/bin/env python3
"""Render every template with every conversation as transformers does: truth.py TEMPLATES_DIR CASES OUT

The rendering is transformers' own; only the clock is fixed. OUT maps template
and case to {"ok": text, "spans": [...]} or {"err": ...}; a template that does
not compile has the single case "*".
"""

import copy
import glob
import json
import logging
import os
import sys
import time

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from transformers.utils import chat_template_utils as ct

logging.disable(logging.WARNING)
NOW = time.gmtime(1764547200)  # 2025-12-01


def main():
    folder, cases_file, out = sys.argv[1:4]
    data = json.load(open(cases_file, encoding="utf-8"))
    result, renders, raised = {}, 0, 0
    for file in sorted(glob.glob(folder + "/*.jinja")):
        source = open(file, encoding="utf-8", newline="").read()
        r = result[os.path.basename(file)[:-6]] = {}
        try:
            compiled = ct._compile_jinja_template(source)
        except Exception as e:
            r["*"] = {"err": f"{type(e).__name__}: {e}"[:300]}
            continue
        compiled.globals["strftime_now"] = lambda f: time.strftime(f, NOW)
        spans = "endgeneration" in source
        for name, case in data["cases"].items():
            renders += 1
            mask = spans and not case["continue_final_message"]
            try:
                # A list of lists is a batch to transformers, so each case is a batch of one.
                texts, marks = ct.render_jinja_template(
                    [copy.deepcopy(case["messages"])],
                    tools=case["tools"],
                    documents=None,
                    chat_template=source,
                    return_assistant_tokens_mask=mask,
                    continue_final_message=case["continue_final_message"],
                    add_generation_prompt=case["add_generation_prompt"],
                    **data["special"],
                    **case["kwargs"],
                )
                r[name] = {"ok": texts[0]}
                if mask:
                    r[name]["spans"] = marks[0]
            except Exception as e:
                raised += 1
                r[name] = {"err": f"{type(e).__name__}: {e}"[:300]}
    with open(out, "w", encoding="utf-8") as f:
        json.dump(result, f, ensure_ascii=False)
    print(f"{len(result)} templates, {renders} renders, {raised} raised")


main()
