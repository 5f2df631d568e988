# SPDX-License-Identifier: Apache-2.0
"""Other clients of a server: clients_more.py URL. Exits with status 1 at the first difference."""
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
print("ok")
