# SPDX-License-Identifier: Apache-2.0
"""LangChain as a client of a server: clients_langchain.py URL. Exits with status 1 at the first
difference."""
import sys

import langchain_openai
import openai
import pydantic
from langchain_core.messages import HumanMessage, ToolMessage

url = sys.argv[1] + "/v1"
model = openai.OpenAI(base_url=url, api_key="none").models.list().data[0].id
chat = langchain_openai.ChatOpenAI(base_url=url, api_key="none", model=model, temperature=0,
                                   max_tokens=120, max_retries=0)
finds_tools = "Coder" in model  # the smallest model calls them only if it must


class GetWeather(pydantic.BaseModel):
    """The weather of a city."""
    city: str = pydantic.Field(max_length=20)


class Person(pydantic.BaseModel):
    """A person."""
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=1, le=99)


question = HumanMessage("What is the weather in Paris?")
for choice in ["auto"] * finds_tools + ["required", "GetWeather"]:
    bound = chat.bind_tools([GetWeather], tool_choice=choice, parallel_tool_calls=False)
    answer = bound.invoke([question])
    assert [call["name"] for call in answer.tool_calls] == ["GetWeather"], answer
    GetWeather.model_validate(answer.tool_calls[0]["args"])
    joined = None
    for chunk in bound.stream([question]):
        joined = chunk if joined is None else joined + chunk
    assert ([call["args"] for call in joined.tool_calls]
            == [call["args"] for call in answer.tool_calls]), (joined, answer)

result = ToolMessage("Sunny, 21 degrees.", tool_call_id=answer.tool_calls[0]["id"])
assert chat.bind_tools([GetWeather]).invoke([question, answer, result]).usage_metadata

for method in ("json_schema", "function_calling"):
    person = chat.with_structured_output(Person, method=method).invoke(
        "Ada is 36 years old. Who is she, as JSON?")
    assert isinstance(person, Person), (method, person)
    assert not finds_tools or person == Person(name="Ada", age=36), (method, person)
print("ok")
