#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders chat templates with jinja2 as transformers does, for chat_template_peer_test.cc.

peer_chat.py FOLDER [GGUF …] OUT: FOLDER has templates (*.jinja) and snippets.txt, which has a
small template per line (␤ stands for \\n, ␍ for \\r). GGUF files give their
tokenizer.chat_template. OUT becomes {"now": …, "special_tokens": {…}, "templates": {name: source},
"cases": [{"template": name, "messages", "tools", "variables", "add_generation_prompt", and "text"
or "exception"}]}.
"""
import datetime
import json
import pathlib
import random
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1_721_999_999
CONVERSATIONS = 200  # for each template
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
WORDS = """hello world the a <|im_end|> <|im_start|>system <|eot_id|> <end_of_turn> <|end|> </s>
[INST] [/INST] <｜User｜> ünïcode 漢字 😀 "quoted" it's \\ {{ x }} {% if %} <think> </think>
<tool_response> </tool_response> </tool_call> ' {} [] & < > = \u00a0 \u2028 e\u0301""".split() + [
    "\n", "\n\n", "\r\n", "\t", "  ", "", "\x7f", "\x01"]
VARIABLES = [{}, {}, {"enable_thinking": False}, {"enable_thinking": True}, {"thinking": True},
             {"tools_in_user_message": False}, {"date_string": "1 Apr 2025"},
             {"allow_system": False}, {"builtin_tools": ["code_interpreter", "f0"]},
             {"custom_tools": []}]
SNIPPET_VARIABLES = {
    "x": 5, "f": 2.5, "s": "héllo Wörld", "l": [3, 1, 2], "d": {"b": 1, "a": [1, 2, {"c": None}]},
    "e": "", "n": None, "t": True}
SNIPPET_MESSAGES = [{"role": "user", "content": "Hi  there"},
                    {"role": "assistant", "content": "Hello\nyou"}]


class Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %}, which only marks a part."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller):
        return caller()


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = (
        lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form))
    return environment


class Conversations:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, probability):
        return self.random.random() < probability

    def text(self, most=12):
        words = [self.random.choice(WORDS) for _ in range(self.random.randint(0, most))]
        return "".join(word + self.random.choice(["", " ", " "]) for word in words)

    def schema(self, depth=0):
        kinds = ["string", "integer", "object", "array", "number", "boolean"]
        out = {"type": self.random.choice(kinds) if depth < 3 else "string"}
        if self.chance(0.6):
            out["description"] = self.text(5)
        if out["type"] == "object":
            out["properties"] = {f"p{i}": self.schema(depth + 1)
                                 for i in range(self.random.randint(0, 3))}
            out["required"] = list(out["properties"])[:1]
        elif out["type"] == "array":
            out["items"] = self.schema(depth + 1)
        elif self.chance(0.3):
            out["enum"] = ["a", self.text(2), 1, None]
        return out

    def tools(self):
        def function(name):
            return {"name": name, "description": self.text(5),
                    "parameters": {"type": "object", "properties": {
                        f"q{i}": self.schema() for i in range(self.random.randint(0, 3))},
                        "required": []}}
        return [{"type": "function", "function": function(f"f{i}")}
                for i in range(self.random.randint(1, 3))]

    def arguments(self):
        values = [1, -2.5, 1e300, 1e-7, "x é", self.text(4), None, True, [1, [2]], {"z": {}}]
        return {key: self.random.choice(values) for key in "abc" if self.chance(0.5)}

    def calls(self):
        count = 1 if self.chance(0.8) else 2
        name = self.random.choice(["f0", "f1"])
        return [{"id": "call12345" if self.chance(0.9) else "c1", "type": "function",
                 "function": {"name": name, "arguments": self.arguments()}} for _ in range(count)]

    def answer(self):
        text = self.text()
        if self.chance(0.4):
            text = "<think>\n" + self.text() + "\n</think>\n\n" + text
        out = {"role": "assistant", "content": text}
        if self.chance(0.1):
            out["reasoning_content"] = self.text(4)
        return out

    def turn(self):
        out = [{"role": "user", "content": self.text(20)}]
        if self.chance(0.05):
            out[0]["content"] = [{"type": "text", "text": self.text()}, {"type": "image"}]
        if self.chance(0.3):
            content = self.random.choice(["", self.text(), self.text(), None])
            out.append({"role": "assistant", "content": content, "tool_calls": self.calls()})
            for _ in range(self.random.randint(1, 2)):
                out.append({"role": "tool", "content": self.text(), "tool_call_id": "call12345",
                            "name": "f0"})
        return out + [self.answer()]

    def messages(self):
        out = []
        if self.chance(0.5):
            out.append({"role": "system", "content": self.text()})
            if self.chance(0.1):
                out[0]["tools"] = self.text(3)
        for _ in range(self.random.randint(1, 4)):
            out += self.turn()
        if self.chance(0.6):
            out.pop()
        if self.chance(0.1):  # out of order
            self.random.shuffle(out)
        if self.chance(0.03):
            out.append({"role": self.random.choice(["critic", "ipython"]), "content": self.text()})
        return out


def template_of_gguf(path):
    import gguf
    field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
    return None if field is None else bytes(field.parts[field.data[0]]).decode("utf-8")


def rendered(environment, templates, case):
    name = case["template"]
    try:
        if isinstance(templates[name], str):
            templates[name] = environment.from_string(templates[name])
        text = templates[name].render(
            messages=case["messages"], tools=case["tools"], documents=None,
            add_generation_prompt=case["add_generation_prompt"],
            **SPECIAL_TOKENS, **case["variables"])
        return {"text": text}
    except Exception as error:  # whatever Python raises, hone must refuse
        return {"exception": f"{type(error).__name__}: {error}"}


def main():
    folder, *models, out = sys.argv[1:]
    templates = {path.name: path.read_text(encoding="utf-8")
                 for path in sorted(pathlib.Path(folder).glob("*.jinja"))}
    for path in models:
        source = template_of_gguf(path)
        if source is not None:
            templates[pathlib.Path(path).name] = source
    cases = []
    source = Conversations(7)
    for name in templates:
        for _ in range(CONVERSATIONS):
            cases.append({"template": name, "messages": source.messages(),
                          "tools": source.tools() if source.chance(0.3) else None,
                          "variables": source.random.choice(VARIABLES),
                          "add_generation_prompt": source.chance(0.7)})
    snippets = (pathlib.Path(folder) / "snippets.txt").read_text(encoding="utf-8")
    for line, snippet in enumerate(snippets.rstrip("\n").split("\n"), 1):
        name = f"snippets.txt:{line}"
        templates[name] = snippet.replace("␤", "\n").replace("␍", "\r")
        cases.append({"template": name, "messages": SNIPPET_MESSAGES, "tools": None,
                      "variables": SNIPPET_VARIABLES, "add_generation_prompt": True})
    environment, compiled = make_environment(), dict(templates)
    for case in cases:
        case.update(rendered(environment, compiled, case))
    with open(out, "w", encoding="utf-8") as stream:
        json.dump({"now": NOW, "special_tokens": SPECIAL_TOKENS, "templates": templates,
                   "cases": cases}, stream)


if __name__ == "__main__":
    main()
