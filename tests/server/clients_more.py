# SPDX-License-Identifier: Apache-2.0
"""Other clients of a server: clients_more.py URL. Exits with status 1 at the first difference."""
import json
import sys

import anthropic
import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
hello = "Say hello in French."

whole = client.responses.create(model=model, input=hello, max_output_tokens=20, temperature=0)
assert whole.status in ("completed", "incomplete") and whole.usage.output_tokens <= 20
with client.responses.stream(model=model, input=hello, max_output_tokens=20,
                             temperature=0) as stream:
    for _ in stream:
        pass
    assert stream.get_final_response().output_text == whole.output_text

vectors = [entry.embedding for entry in  # as base64 unless told otherwise
           client.embeddings.create(model=model, input=["cat", "dog", "quantum physics"]).data]
similarity = [sum(a * b for a, b in zip(vectors[0], vector)) for vector in vectors]
assert abs(similarity[0] - 1) < 1e-5 and similarity[1] > similarity[2], similarity

messages = [{"role": "user", "content": hello}]
other = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
options = dict(model=model, max_tokens=20, messages=messages, extra_body={"temperature": 0})
answer = other.messages.create(**options)
assert answer.content[0].text == whole.output_text, answer
with other.messages.stream(**options) as stream:
    assert "".join(stream.text_stream) == answer.content[0].text
    usage = stream.get_final_message().usage
count = other.messages.count_tokens(model=model, messages=messages).input_tokens
assert usage.input_tokens + usage.cache_read_input_tokens == count
try:
    other.messages.create(model="another", max_tokens=3, messages=messages)
    raise SystemExit("another model was accepted")
except anthropic.NotFoundError:
    pass

# Tools.
city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"], "additionalProperties": False}
described = {"get_weather": "The weather of a city.", "get_time": "The time in a city."}
finds_tools = "Coder" in model  # the smallest model calls them only if it must
question = "What is the weather in Paris?"


def calls_of(response):
    found = [(item.name, item.arguments) for item in response.output
             if item.type == "function_call"]
    for name, arguments in found:
        assert name in described and list(json.loads(arguments)) == ["city"], found
    return found


functions = [{"type": "function", "name": name, "description": text, "parameters": city,
              "strict": True} for name, text in described.items()]
for choice in ["auto", "required", {"type": "function", "name": "get_time"}]:
    options = dict(model=model, temperature=0, max_output_tokens=120, tools=functions,
                   tool_choice=choice, parallel_tool_calls=False,
                   input=[{"role": "user", "content": question}])
    whole = client.responses.create(**options)
    called = [name for name, _ in calls_of(whole)]
    if choice == "auto":
        assert called == ["get_weather"] or not finds_tools, whole
    else:
        assert len(called) == 1 and whole.status == "completed", whole
        assert choice == "required" or called == ["get_time"], whole
    deltas = {}
    with client.responses.stream(**options) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                deltas[event.output_index] = deltas.get(event.output_index, "") + event.delta
        final = stream.get_final_response()
    assert calls_of(final) == calls_of(whole), final
    assert final.output_text == whole.output_text, final
    assert list(deltas.values()) == [arguments for _, arguments in calls_of(whole)], deltas

call = whole.output[-1]
result = {"type": "function_call_output", "call_id": call.call_id, "output": "It is noon."}
after = client.responses.create(**{**options, "tool_choice": "auto",
                                   "input": [*options["input"], *whole.output, result]})
assert after.output_text or calls_of(after), after
assert after.usage.input_tokens > whole.usage.input_tokens, after
assert after.usage.input_tokens_details.cached_tokens > whole.usage.input_tokens // 2, after

tools = [{"name": name, "description": text, "input_schema": city}
         for name, text in described.items()]
for choice in [{"type": "auto"}, {"type": "any", "disable_parallel_tool_use": True},
               {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True}]:
    options = dict(model=model, max_tokens=120, tools=tools, tool_choice=choice,
                   messages=[{"role": "user", "content": question}],
                   extra_body={"temperature": 0})
    answer = other.messages.create(**options)
    used = [block for block in answer.content if block.type == "tool_use"]
    for block in used:
        assert block.name in described and list(block.input) == ["city"], answer
    if choice["type"] == "auto":
        assert [block.name for block in used] == ["get_weather"] or not finds_tools, answer
    else:
        assert len(used) == 1 and answer.stop_reason == "tool_use", answer
        assert choice["type"] == "any" or used[0].name == "get_time", answer
    pieces = ""
    with other.messages.stream(**options) as stream:
        for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                pieces += event.delta.partial_json
        final = stream.get_final_message()
    assert final.stop_reason == answer.stop_reason, final
    assert ([block.to_dict() | {"id": None} for block in final.content]
            == [block.to_dict() | {"id": None} for block in answer.content]), (final, answer)
    if len(used) == 1:
        assert json.loads(pieces) == used[0].input, pieces

result = {"type": "tool_result", "tool_use_id": used[0].id,
          "content": [{"type": "text", "text": "It is noon."}]}
turns = [*options["messages"], {"role": "assistant", "content": answer.content},
         {"role": "user", "content": [result]}]
after = other.messages.create(**{**options, "messages": turns, "tool_choice": {"type": "auto"}})
assert after.content and after.stop_reason in ("end_turn", "tool_use", "max_tokens"), after
assert after.usage.cache_read_input_tokens > 0, after
counted = other.messages.count_tokens(model=model, messages=turns, tools=tools).input_tokens
assert after.usage.input_tokens + after.usage.cache_read_input_tokens == counted, after
print("ok")
