"""OpenAI's SDK for Python against turnlog. usage: sdk.py BASE_URL KEY"""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
asked = "\n".join(["What now?", "mock: think Let me see.", 'mock: call weather {"city":  "Ulm"}', "mock: say It rains."])
parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

# Chat, streamed through the SDK's own accumulator, then the next turn.
tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
messages = [{"role": "user", "content": asked}]
with client.chat.completions.stream(model="demo", messages=messages, tools=tools) as stream:
    for _ in stream:
        pass
    answer = stream.get_final_completion().choices[0]
assert answer.finish_reason == "tool_calls", answer
call = answer.message.tool_calls[0]
assert call.function.arguments == '{"city":  "Ulm"}', call
messages.append(answer.message.to_dict())
messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})
second = client.chat.completions.create(model="demo", messages=messages, tools=tools)
assert second.choices[0].message.content == "It rains.", second

# Responses.
tools = [{"type": "function", "name": "weather", "parameters": parameters, "strict": False}]
with client.responses.stream(model="demo", input=asked, tools=tools) as stream:
    for _ in stream:
        pass
    first = stream.get_final_response()
assert [item.type for item in first.output] == ["reasoning", "function_call"], first

try:
    client.chat.completions.create(model="demo", messages=[])
except openai.BadRequestError as e:
    assert "messages" in e.message, e
else:
    raise AssertionError("no error for empty messages")
