#!/usr/bin/env python3
"""The Python and Rust side of bench.sh: bench.py CASES TEXT template:NAME=FILE... tokenizer:NAME=FILE...

Prints one JSON object that maps names to microseconds.
"""

import json
import sys
import time

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer


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


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
    x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
)
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: "2025-12-01"
results = {}


def micros(f):
    """How much processor time f takes, the best of a few rounds."""
    f()
    best, runs = None, 1
    for _ in range(5):
        start = time.process_time()
        for _ in range(runs):
            f()
        spent = time.process_time() - start
        if best is None or spent / runs < best:
            best = spent / runs
        runs = min(max(1, int(runs * 0.2 / max(spent, 1e-6))), 2_000_000)
    return best * 1e6


case = json.load(open(sys.argv[1], encoding="utf-8"))["cases"]["31_long50"]
text = open(sys.argv[2], encoding="utf-8").read()
for arg in sys.argv[3:]:
    kind, file = arg.split("=", 1)
    kind, name = kind.split(":", 1)
    if kind == "template":
        t = env.from_string(open(file, encoding="utf-8", newline="").read())
        results["render " + name] = micros(
            lambda: t.render(
                messages=case["messages"],
                tools=case["tools"],
                documents=None,
                add_generation_prompt=True,
                bos_token="<s>",
                eos_token="</s>",
            )
        )
        continue
    tok = Tokenizer.from_file(file)
    results["load " + name] = micros(lambda: Tokenizer.from_file(file))
    for size in (20, 100, 1000, 10_000, 100_000):
        part = text.encode()[:size].decode("utf-8", "ignore")
        results[f"encode {name} {size}"] = micros(lambda: tok.encode(part, add_special_tokens=False))
    ids = tok.encode(text[:10_000], add_special_tokens=False).ids
    results["decode " + name] = micros(lambda: tok.decode(ids, skip_special_tokens=False))
print(json.dumps(results))
