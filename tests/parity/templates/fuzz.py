#!/usr/bin/env python3
"""Random conversations, including malformed ones. fuzz.py OUT N SEED"""

import json, random, sys

R = random.Random(int(sys.argv[3]))
W = [
    "hello",
    "  spaced  ",
    "\n\nlead",
    "trail\n",
    "<think>\nreason\n</think>\n\nanswer",
    "</think>",
    "<tool_response>",
    "<|im_end|>",
    '{"a": 1}',
    "日本語",
    "e\u0301",
    "👩‍👩‍👧",
    "",
    " ",
    "\t",
    "'q' \"dq\"",
    "a\\b",
    "\u2028\u00a0",
    "None",
    "x" * 50,
    "\x1c\x85",
    "ß İ ŉ ǆ",
    "%s {} {{x}}",
    "line1\nline2\r\nline3",
    "<b>&amp;</b>",
    "[INST] hi [/INST]",
    "<|channel|>final<|message|>",
    "0",
    "<arg_key>",
    "ends with <think>",
]


def text():
    return "".join(R.choice(W) for _ in range(R.randrange(1, 4)))


def scalar():
    return R.choice([None, True, False, 0, 1, -7, 3.5, 1e-9, 1e20, 2**70, text(), text(), "plain"])


def val(d=0):
    k = R.random()
    if d > 2 or k < 0.6:
        return scalar()
    if k < 0.8:
        return [val(d + 1) for _ in range(R.randrange(0, 4))]
    return {R.choice(["b", "a", "items", "keys", "zz", "type", "get", "é", "name", "1"]): val(d + 1) for _ in range(R.randrange(0, 4))}


def args():
    k = R.random() * (1 if MESSY else 0.75)
    if k < 0.75:
        return {R.choice(["path", "cmd", "items", "limit", "A", "b"]): val() for _ in range(R.randrange(0, 4))}
    if k < 0.9:
        return json.dumps({R.choice(["path", "cmd"]): val()}, ensure_ascii=R.random() < 0.5)
    return R.choice(["not json", "", [], None])


def call(i):
    f = {"name": R.choice(["run", "get_weather", "a.b"]), "arguments": args()}
    if MESSY and R.random() < 0.06:
        del f["arguments"]
    c = {"id": f"call_{i}", "type": "function", "function": f}
    if MESSY and R.random() < 0.1:
        c = f
    if R.random() < 0.1:
        c.pop("id", None)
    return c


def content():
    k = R.random() * (1 if MESSY else 0.76)
    if k < 0.75:
        return text()
    if k < 0.83:
        return [{"type": "text", "text": text()} for _ in range(R.randrange(0, 3))]
    if k < 0.88:
        return [{"type": "image"}, {"type": "text", "text": text()}]
    if k < 0.94:
        return None
    return val()


def schema(d=0):
    t = R.choice(["string", "integer", "number", "boolean", "object", "array", "null", ["string", "null"]])
    s = {"type": t}
    if R.random() < 0.7:
        s["description"] = text()
    if R.random() < 0.3:
        s["enum"] = [scalar() for _ in range(R.randrange(1, 4))]
    if R.random() < 0.3:
        s["default"] = val(2)
    if t == "array" and R.random() < 0.8 and d < 3:
        s["items"] = schema(d + 1)
    if t == "object" and R.random() < 0.8 and d < 3:
        s["properties"] = {R.choice(["zeta", "alpha", "items", "type"]): schema(d + 1) for _ in range(R.randrange(0, 3))}
        if R.random() < 0.5:
            s["required"] = list(s["properties"])[:1]
    if R.random() < 0.1:
        s = {"anyOf": [schema(d + 1), {"type": "null"}]} if d < 3 else s
    if R.random() < 0.1:
        s["nullable"] = True
    return s


def tool():
    p = {"type": "object", "properties": {R.choice(["path", "cmd", "items", "q"]): schema() for _ in range(R.randrange(0, 4))}}
    if R.random() < 0.7:
        p["required"] = list(p["properties"])[: R.randrange(0, 3)]
    f = {"name": R.choice(["run", "get_weather"]), "description": text(), "parameters": p}
    if R.random() < 0.1:
        del f["parameters"]
    if R.random() < 0.1:
        f["return"] = {"type": "string"}
    return {"type": "function", "function": f} if R.random() < 0.9 else f


MESSY = True


def conv():
    global MESSY
    MESSY = R.random() < 0.35
    m = []
    if R.random() < 0.6:
        m.append({"role": R.choice(["system", "system", "developer"]), "content": content() if MESSY and R.random() < 0.2 else text()})
    for i in range(R.randrange(1, 6)):
        m.append({"role": "user", "content": content()})
        if R.random() < 0.8:
            a = {"role": "assistant", "content": content()}
            if R.random() < 0.4:
                a[R.choice(["reasoning_content", "reasoning", "thinking"])] = R.choice([text(), text(), None, ""])
            if R.random() < 0.45:
                a["tool_calls"] = [call(j) for j in range(R.randrange(0, 3))]
                if MESSY and R.random() < 0.3:
                    a.pop("content")
            m.append(a)
            for j in range(len(a.get("tool_calls", []))):
                t = {"role": R.choice(["tool"] * 9 + ["ipython"]), "content": content()}
                if R.random() < 0.8:
                    t["tool_call_id"] = f"call_{j}"
                if R.random() < 0.5:
                    t["name"] = "run"
                m.append(t)
            if R.random() < 0.5:
                m.append({"role": "assistant", "content": content()})
    if R.random() < 0.05:
        m.append({"content": "no role"})
    return m


cases = {}
for n in range(int(sys.argv[2])):
    kw = {}
    if R.random() < 0.3:
        kw["enable_thinking"] = R.choice([True, False])
    if R.random() < 0.2:
        kw["thinking"] = R.choice([True, False])
    if R.random() < 0.1:
        kw["clear_thinking"] = R.choice([True, False])
    if R.random() < 0.1:
        kw["preserve_thinking"] = R.choice([True, False])
    if R.random() < 0.1:
        kw["reasoning_effort"] = R.choice(["low", "high", "max", None])
    if R.random() < 0.05:
        kw["builtin_tools"] = ["browser", "python"]
    cases[f"f{n}"] = {
        "messages": conv(),
        "tools": [tool() for _ in range(R.randrange(0, 4))] if R.random() < 0.6 else None,
        "add_generation_prompt": R.random() < 0.5,
        "continue_final_message": False,
        "kwargs": kw,
        "kwargs_json": json.dumps(kw),
    }
json.dump(
    {"special": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}, "cases": cases},
    open(sys.argv[1], "w"),
    ensure_ascii=False,
)
