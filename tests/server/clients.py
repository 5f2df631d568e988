# SPDX-License-Identifier: Apache-2.0
"""Uses a server as its clients do: clients.py URL. Exits with status 1 at the first difference."""
import sys

import openai

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
    import json
    assert set(json.loads(answer.choices[0].message.content)) == {"name", "age"}
print("ok")
