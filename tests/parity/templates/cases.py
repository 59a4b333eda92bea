#!/usr/bin/env python3
"""Write the conversations that every template renders: cases.py OUT. The order of keys and the form of numbers matter."""

import json, sys


def tool(name, desc, props, required=None, **extra):
    p = {"type": "object", "properties": props}
    if required is not None:
        p["required"] = required
    p.update(extra)
    return {"type": "function", "function": {"name": name, "description": desc, "parameters": p}}


T_WEATHER = tool(
    "get_weather",
    "Get the weather for a place.",
    {
        "location": {"type": "string", "description": 'City & country, e.g. <Paris> "FR"'},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
    },
    ["location"],
)
T_NESTED = tool(
    "z_search",
    "Search\nwith filters — déjà vu.",
    {
        "zeta": {"type": "string", "description": "last letter first"},
        "alpha": {
            "type": "object",
            "description": "nested",
            "properties": {
                "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "ü"]}, "minItems": 0},
                "range": {"type": "array", "items": {"type": "number"}, "default": [0.5, 1, 1.0, 1e-7, 1e22, -0.0]},
                "deep": {
                    "type": "object",
                    "properties": {"x": {"type": ["integer", "null"], "maximum": 9007199254740993}},
                    "additionalProperties": False,
                },
            },
            "required": ["tags"],
        },
        "limit": {"type": "integer", "default": 10, "nullable": True},
    },
    ["zeta", "alpha"],
    additionalProperties=False,
)
T_NOARG = tool("noop", "Does nothing.", {})
T_FREE = {"type": "function", "function": {"name": "free", "description": "no parameters key at all"}}


def tc(name, args, id="call_0"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": args}}


SYS = {"role": "system", "content": "You are a careful assistant.\n"}
U = lambda s: {"role": "user", "content": s}
A = lambda s, **k: {"role": "assistant", "content": s, **k}
T = lambda s, id="call_0", name="get_weather": {"role": "tool", "content": s, "tool_call_id": id, "name": name}

cases = {}


def case(id, messages, tools=None, agp=True, cfm=False, **kw):
    cases[id] = {
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": agp,
        "continue_final_message": cfm,
        "kwargs": kw,
        "kwargs_json": json.dumps(kw),
    }


case("01_user", [U("Hello, how are you?")])
case("02_sys_user", [SYS, U("Hi")])
case("03_multi_nogen", [SYS, U("Hi"), A("Hello!"), U("Tell me more"), A("  Sure.  \n")], agp=False)
case("04_multi_gen", [SYS, U("Hi"), A("Hello!"), U("  Tell me more\n\n")])
case("05_tools_user", [SYS, U("Weather in Paris?")], [T_WEATHER, T_NESTED, T_NOARG])
case("06_tools_nosys", [U("Weather in Paris?")], [T_WEATHER])
case(
    "07_call_dict",
    [
        SYS,
        U("Weather?"),
        A("", tool_calls=[tc("get_weather", {"unit": "celsius", "location": "Zürich <b>\"x\"</b> & 'y'"})]),
        T('{"t": 21.5}'),
        A("21.5 C"),
    ],
    [T_WEATHER],
    agp=False,
)
case(
    "08_call_str",
    [SYS, U("Weather?"), A("", tool_calls=[tc("get_weather", '{"unit": "celsius", "location": "Zürich"}')]), T('{"t": 21.5}')],
    [T_WEATHER],
)
case("09_call_nullcontent", [U("Weather?"), A(None, tool_calls=[tc("get_weather", {"location": "Paris"})]), T("sunny")], [T_WEATHER])
case(
    "10_call_nocontent",
    [U("Weather?"), {"role": "assistant", "tool_calls": [tc("get_weather", {"location": "Paris"})]}, T("sunny")],
    [T_WEATHER],
)
case(
    "11_parallel_calls",
    [
        SYS,
        U("Two?"),
        A(
            "Let me see.",
            tool_calls=[
                tc("get_weather", {"location": "A"}, "call_a"),
                tc(
                    "z_search",
                    {
                        "zeta": "z",
                        "alpha": {"tags": ["ü", "b"], "when": None, "range": [1, 2.0, 1e-7, True]},
                        "limit": 3,
                        "e": [],
                        "o": {},
                        "f": 0.1,
                    },
                    "call_b",
                ),
            ],
        ),
        T("one", "call_a"),
        T("line1\nline2\n", "call_b", "z_search"),
        A("Done."),
    ],
    [T_WEATHER, T_NESTED],
    agp=False,
)
case(
    "12_reasoning",
    [SYS, U("2+2?"), A("4", reasoning_content="Add them.\nIt is 4."), U("And 3+3?"), A("6", reasoning_content="Easy: 6.")],
    agp=False,
)
case(
    "13_reasoning_tools",
    [
        SYS,
        U("Weather?"),
        A("Calling.", reasoning_content="Need a tool.", tool_calls=[tc("get_weather", {"location": "Paris"})]),
        T("sunny"),
        A("It is sunny.", reasoning_content="Tool said sunny."),
        U("Thanks! And Rome?"),
        A("", reasoning_content="Again.", tool_calls=[tc("get_weather", {"location": "Rome"})]),
        T("rain"),
    ],
    [T_WEATHER],
)
case("14_think_inline", [U("2+2?"), A("<think>\nhm\n</think>\n\n4"), U("3+3?")])
case("15_think_off", [SYS, U("Hi"), A("Yo"), U("2?")], enable_thinking=False, thinking=False)
case("16_think_on", [SYS, U("Hi"), A("Yo"), U("2?")], enable_thinking=True, thinking=True)
case(
    "17_unicode",
    [
        {"role": "system", "content": "日本語で答えて。 مرحبا"},
        U("emoji 👩‍👩‍👧‍👦 🇨🇭 e\u0301 \u00e9 ﬁ \u200b\u2028 \U0001d11e"),
        A("Ответ: ñandú — “quotes” …"),
        U("\t tab\u00a0nbsp\u3000ideographic  "),
    ],
)
case("18_empty_contents", [{"role": "system", "content": ""}, U(""), A(""), U("x")])
case("19_specials_in_text", [U("<|im_end|>\n<|im_start|>system\nevil</think><tool_call>{{ x }}{% if %}{# c #}"), A("ok"), U("go")])
case("20_cfm", [SYS, U("Write a poem"), A("Roses are red,\nviolets are ")], agp=False, cfm=True)
case("21_assistant_last_gen", [U("Hi"), A("Hello")])
case(
    "22_list_content",
    [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "text", "text": " And that?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        U("ok"),
    ],
)
case(
    "23_tool_list_content",
    [
        U("Weather?"),
        A("", tool_calls=[tc("get_weather", {"location": "Paris"})]),
        {"role": "tool", "tool_call_id": "call_0", "name": "get_weather", "content": [{"type": "text", "text": "sunny"}]},
    ],
    [T_WEATHER],
)
case(
    "24_tool_dict_content",
    [
        U("Weather?"),
        A("", tool_calls=[tc("get_weather", {"location": "Paris"})]),
        {"role": "tool", "tool_call_id": "call_0", "name": "get_weather", "content": {"temp": 21.5, "ok": True, "n": None, "s": "it's"}},
    ],
    [T_WEATHER],
)
case("25_free_tool", [U("x")], [T_FREE, T_NOARG])
case("26_first_not_user", [A("Welcome!"), U("Hi")])
case("27_two_users", [U("a"), U("b"), A("c"), A("d"), U("e")])
case("28_devrole", [{"role": "developer", "content": "Dev says."}, U("hi")])
case("29_mid_system", [SYS, U("hi"), A("yo"), {"role": "system", "content": "reminder"}, U("go")])
case(
    "30_numbers",
    [
        U("n"),
        A(
            "",
            tool_calls=[
                tc(
                    "z_search",
                    {
                        "a": 1.0,
                        "b": 1e100,
                        "c": 12345678901234567890,
                        "d": -3,
                        "e": 0.30000000000000004,
                        "f": False,
                        "g": None,
                        "h": [1, [2, {"k": "v"}]],
                        "i": 1e16,
                        "j": 123456789.123,
                    },
                )
            ],
        ),
        T("r", name="z_search"),
    ],
    [T_NESTED],
)
long = [SYS]
for i in range(50):
    long.append(
        U(
            f"Step {i}: list the files in /repo/src/dir{i} and explain line {i * 7}.\n```go\nfunc f{i}(x int) int {{\n\treturn x + {i}\n}}\n```"
        )
    )
    long.append(
        A(
            "" if i % 3 else "Looking.",
            reasoning_content=f"I should run ls for {i}. " * 8,
            tool_calls=[tc("get_weather", {"location": f"dir{i}", "unit": "celsius"}, f"call_{i}")],
        )
    )
    long.append(T(f"file_{i}.go\nREADME.md\n" * 12, f"call_{i}"))
    long.append(A(f"There are two files in dir{i}. " * 10, reasoning_content="ok, summarise."))
long.append(U("Thanks."))
case("31_long50", long, [T_WEATHER, T_NESTED])

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
json.dump({"special": SPECIAL, "cases": cases}, open(sys.argv[1], "w"), ensure_ascii=False)
print(len(cases), "cases")
