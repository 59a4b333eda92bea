#!/usr/bin/env python3
"""Write golden.json from sources.json: what jinja2 makes of each source.

    pip install jinja2==3.1.6 && python3 testdata/generate.py

The environment is the one that transformers sets up. sources.json is a list of
templates, each about a few features; VARS are their variables.
"""

import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARS = {
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": " u "}],
    "tools": None,
    "documents": None,
    "add_generation_prompt": True,
    "bos_token": "<s>",
}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: "2025-12-01 December"

os.chdir(os.path.dirname(os.path.abspath(__file__)))
golden = []
for source in json.load(open("sources.json", encoding="utf-8")):
    try:
        golden.append({"source": source, "text": env.from_string(source).render(**VARS)})
    except Exception as e:
        golden.append({"source": source, "raises": type(e).__name__})
with open("golden.json", "w", encoding="utf-8") as f:
    json.dump({"vars": VARS, "cases": golden}, f, ensure_ascii=False, indent=1)
    f.write("\n")
print(len(golden), "cases,", sum("raises" in g for g in golden), "raise")
