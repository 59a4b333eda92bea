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
    x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: "2025-12-01"
results = {}


def micros(f):
    """How long f takes, the best of a few rounds of a tenth of a second."""
    f()
    best, rounds = None, 1
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(rounds):
            f()
        seconds = time.perf_counter() - start
        if best is None or seconds / rounds < best:
            best = seconds / rounds
        rounds = max(1, int(rounds * 0.1 / max(seconds, 1e-9)))
    return best * 1e6


case = json.load(open(sys.argv[1], encoding="utf-8"))["cases"]["31_long50"]
text = open(sys.argv[2], encoding="utf-8").read()
for arg in sys.argv[3:]:
    kind, file = arg.split("=", 1)
    kind, name = kind.split(":", 1)
    if kind == "template":
        t = env.from_string(open(file, encoding="utf-8", newline="").read())
        results["render " + name] = micros(lambda: t.render(
            messages=case["messages"], tools=case["tools"], documents=None, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"))
        continue
    start = time.perf_counter()
    tok = Tokenizer.from_file(file)
    results["load " + name] = (time.perf_counter() - start) * 1e6
    for size in (20, 100, 1000, 10_000, 100_000):
        part = text.encode()[:size].decode("utf-8", "ignore")
        results[f"encode {name} {size}"] = micros(lambda: tok.encode(part, add_special_tokens=False))
    ids = tok.encode(text[:10_000], add_special_tokens=False).ids
    results["decode " + name] = micros(lambda: tok.decode(ids, skip_special_tokens=False))
print(json.dumps(results))
