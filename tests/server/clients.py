# SPDX-License-Identifier: Apache-2.0
"""Uses a server as its clients do: clients.py URL. Exits with status 1 at the first difference."""
import json
import sys

import openai
import pydantic

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Count from 1 to 5."}]
options = dict(model=model, messages=messages, temperature=0, max_tokens=30)

whole = client.chat.completions.create(logprobs=True, top_logprobs=3, **options)
assert whole.usage.completion_tokens <= 30 and whole.usage.prompt_tokens > 0
entries = whole.choices[0].logprobs.content
assert len(entries) == whole.usage.completion_tokens
for entry in entries:  # at temperature 0 the token is the most likely one, with the same number
    assert entry.top_logprobs[0].logprob == entry.logprob, entry

text, finish, usage = "", None, None
for chunk in client.chat.completions.create(
        stream=True, stream_options={"include_usage": True}, **options):
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
    usage = chunk.usage or usage
assert text == whole.choices[0].message.content, text
assert finish == whole.choices[0].finish_reason
assert usage.completion_tokens == whole.usage.completion_tokens
assert usage.prompt_tokens_details.cached_tokens > 0  # the prompt was there

two = client.completions.create(model=model, prompt=["Once upon a time", "The sky is"], n=2,
                                max_tokens=5, logprobs=2, seed=7)
assert [choice.index for choice in two.choices] == [0, 1, 2, 3]
for choice in two.choices:
    parts = choice.logprobs
    assert "".join(parts.tokens) == choice.text
    for token, logprob, top in zip(parts.tokens, parts.token_logprobs, parts.top_logprobs):
        assert top[token] == logprob

for change, error, code in [
        ({"temperature": 9}, openai.BadRequestError, None),
        ({"model": "another"}, openai.NotFoundError, "model_not_found"),
        ({"messages": [{"role": "user", "content": "x " * 400000}]}, openai.BadRequestError,
         "context_length_exceeded")]:
    try:
        client.chat.completions.create(**{**options, **change})
        raise SystemExit(f"accepted: {list(change)}")
    except error as refused:
        assert refused.code == code, refused

person = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
answer = client.chat.completions.create(
    model=model, max_tokens=100, messages=[{"role": "user", "content": "A person as JSON."}],
    response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": person}})
if answer.choices[0].finish_reason == "stop":
    assert set(json.loads(answer.choices[0].message.content)) == {"name", "age"}


# Tools.
def tool_of(name, description):
    city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"]}
    return {"type": "function",
            "function": {"name": name, "description": description, "parameters": city}}


tools = [tool_of("get_weather", "The weather of a city."), tool_of("get_time", "The time in one.")]
finds_tools = "Coder" in model  # the smallest model calls them only if it must
ask = {"model": model, "temperature": 0, "max_tokens": 120, "tools": tools,
       "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}


def calls_of(message):
    found = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    for name, arguments in found:
        assert name in ("get_weather", "get_time"), found
        assert list(json.loads(arguments)) == ["city"], found
    return found


def check_stream(options, whole):
    """The deltas of a stream join to the whole answer."""
    content, calls, finish = "", [], None
    for chunk in client.chat.completions.create(stream=True, **options):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                if call.index == len(calls):
                    assert call.id and call.type == "function" and call.function.name, call
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments or ""
    message = whole.choices[0].message
    assert content == (message.content or ""), (content, message)
    assert [tuple(call) for call in calls] == calls_of(message), (calls, message)
    assert finish == whole.choices[0].finish_reason, finish


for change in [{}, {"tool_choice": "required", "parallel_tool_calls": False},
               {"tool_choice": {"type": "function", "function": {"name": "get_time"}},
                "parallel_tool_calls": False},
               {"tool_choice": "none"}]:
    options = {**ask, **change}
    whole = client.chat.completions.create(**options)
    message, finish = whole.choices[0].message, whole.choices[0].finish_reason
    choice = change.get("tool_choice", "auto")
    called = [name for name, _ in calls_of(message)]
    if choice == "auto" and finds_tools:
        assert called == ["get_weather"] and message.content is None, message
    elif choice == "required":
        assert len(called) == 1 and finish == "tool_calls", whole
    elif isinstance(choice, dict):
        assert called == ["get_time"] and finish == "tool_calls", whole
    elif choice == "none":
        assert not called and message.content, message
    check_stream(options, whole)

# With several calls, their number is up to the model.
both = {**ask, "tool_choice": "required", "max_tokens": 300,
        "messages": [{"role": "user", "content": "What is the weather in Paris and in London?"}]}
whole = client.chat.completions.create(**both)
assert whole.choices[0].finish_reason == "tool_calls" or not finds_tools, whole
if whole.choices[0].finish_reason == "tool_calls":
    called = calls_of(whole.choices[0].message)
    assert len(called) >= (2 if finds_tools else 1), called
    check_stream(both, whole)
    # The results, in the next turn.
    message = whole.choices[0].message
    assert len({call.id for call in message.tool_calls}) == len(called), message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "21 degrees, sunny"}
               for call in message.tool_calls]
    after = client.chat.completions.create(
        **{**ask, "messages": [*both["messages"], message, *results]})
    assert after.choices[0].message.content or after.choices[0].message.tool_calls, after
    # The first turn is the beginning of the second.
    assert after.usage.prompt_tokens_details.cached_tokens > whole.usage.prompt_tokens // 2, after


class Booking(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=20)
    nights: int = pydantic.Field(ge=1, le=9)


booked = client.chat.completions.parse(
    model=model, temperature=0, max_tokens=120, tool_choice="required", parallel_tool_calls=False,
    tools=[openai.pydantic_function_tool(Booking)],
    messages=[{"role": "user", "content": "Two nights in Rome, please."}])
assert isinstance(booked.choices[0].message.tool_calls[0].function.parsed_arguments, Booking)
print("ok")
