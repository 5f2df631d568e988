# SPDX-License-Identifier: Apache-2.0
"""Replays the requests of a coding agent: agent_trace.py URL KEY KEY… Exits with status 1 at the
first difference.

The first key is the agent's. Each other key is a client of its own, which shares no prefix with the
agent: it asks one of the agent's questions again, and must get the same tokens. The agent must find
at least 95 % of the tokens in the cache that an earlier request of its own has left there.
"""
import concurrent.futures
import json
import os
import sys
import urllib.request

BLOCK = 32  # tokens that prefixes share together
url, agent, *others = sys.argv[1:]

TOOLS = {"ls": "path", "cat": "path", "grep": "pattern path", "find": "name path",
         "edit": "path old new", "write": "path text", "move": "path target", "remove": "path",
         "make": "target", "test": "name", "run": "command", "diff": "path", "log": "path count",
         "blame": "path line", "commit": "message", "branch": "name", "fetch": "address",
         "ask": "question", "todo": "items", "done": "summary"}
RULES = ["Look before you change anything.", "Keep each change small.",
         "Run the tests after each change.", "Never invent the content of a file.",
         "Say in one sentence what you are about to do.", "Use the tools below, one at a time.",
         "Paths are relative to the root of the project.", "Stop when the task is done."]
SYSTEM = "You are a careful coding agent.\n" + "\n".join(
    f"{i + 1}. {RULES[i % len(RULES)]}" for i in range(24))
# What the agent would have called if the answer of the model is none, or cut, and the result.
STEPS = [("ls", {"path": "."}, "Makefile\nREADME\nsrc\ntests"),
         ("cat", {"path": "Makefile"}, "all:\n\tcc -O2 -o app src/main.c src/parse.c\n"),
         ("ls", {"path": "src"}, "main.c\nparse.c\nparse.h"),
         ("cat", {"path": "src/parse.c"},
          "int parse(const char *text) {\n  int n = 0;\n  while (*text >= '0' && *text <= '9')\n"
          "    n = n * 10 + *text++ - '0';\n  return n;\n}\n"),
         ("grep", {"pattern": "parse(", "path": "."}, "src/main.c:7: int n = parse(argv[1]);"),
         ("cat", {"path": "tests/run.sh"}, "./app 12 | grep -q 12\n./app -3 | grep -q -- -3\n"),
         ("test", {"name": "all"}, "1 passed, 1 failed: ./app -3 printed 0"),
         ("edit", {"path": "src/parse.c", "old": "int n = 0;", "new": "int n = 0, s = 1;"}, "ok"),
         ("diff", {"path": "."}, "-  int n = 0;\n+  int n = 0, s = 1;"),
         ("make", {"target": "all"}, "cc -O2 -o app src/main.c src/parse.c"),
         ("test", {"name": "all"}, "1 passed, 1 failed: ./app -3 printed 0"),
         ("log", {"path": "src", "count": "2"}, "a1b2 Parse numbers\nc3d4 Begin")]
EDITED = 8  # before this turn, the agent shortens the result of an earlier one


def post(key, path, body):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def describe(name, parameters):
    properties = {one: {"type": "string"} for one in parameters.split()}
    return {"type": "function", "function": {
        "name": name, "description": f"The command {name}.",
        "parameters": {"type": "object", "properties": properties, "required": list(properties),
                       "additionalProperties": False}}}


tools = [describe(*tool) for tool in TOOLS.items()]


def shared(a, b):
    """The number of tokens with which both begin."""
    return len(os.path.commonprefix([a, b]))


class Trace:
    def __init__(self):
        self.texts = []  # the tokens of each prompt and its answer
        self.asked = []  # each request and the tokens of its answer
        self.reusable = self.reused = 0

    def ask(self, body):
        """Sends a request of the agent, and notes what it reuses."""
        shown = {name: body[name] for name in ("messages", "tools") if name in body}
        prompt = post(agent, "/apply-template", shown)["prompt"]
        ids = post(agent, "/tokenize", {"content": prompt})["tokens"]
        answer = post(agent, "/v1/chat/completions", body)
        usage, choice = answer["usage"], answer["choices"][0]
        assert usage["prompt_tokens"] == len(ids), (usage, len(ids))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        longest = max((shared(ids, text) for text in self.texts), default=0)
        assert cached <= longest, f"{cached} of {longest} tokens came from the cache"
        # The last token of a prompt is always computed: its logits are wanted.
        self.reusable += min(longest, len(ids) - 1) // BLOCK * BLOCK
        self.reused += cached
        self.texts.append(ids + choice["token_ids"])
        self.asked.append((body, choice["token_ids"]))
        return choice


def request_of(messages, **more):
    return {"messages": list(messages), "temperature": 0, "max_tokens": 24,
            "return_token_ids": True, **more}


def is_whole(choice):
    """Whether an answer is a call that an agent could follow."""
    calls = choice["message"].get("tool_calls") or []
    return len(calls) == 1 and choice["finish_reason"] == "tool_calls"


def replay():
    trace = Trace()
    messages = [{"role": "system", "content": SYSTEM},
                {"role": "user", "content": "The tests of ./app fail. Find out why, and fix it."}]
    for turn, (name, arguments, result) in enumerate(STEPS):
        if turn == 4:  # a title for the list of conversations
            trace.ask(request_of([{"role": "system", "content": "Answer with a title."},
                                  messages[1]]))
        if turn == EDITED:
            messages[5] = {**messages[5], "content": "(left out)"}
        choice = trace.ask(request_of(messages, tools=tools, parallel_tool_calls=False,
                                      tool_choice="required" if turn % 2 else "auto"))
        call = {"id": f"call{turn:05}", "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)}}
        if is_whole(choice):
            call = choice["message"]["tool_calls"][0]
        messages.append({"role": "assistant", "content": choice["message"]["content"],
                         "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return trace


trace = replay()
assert len(trace.asked) == len(STEPS) + 1 <= len(others), "every request needs a key of its own"
longest = max(len(text) for text in trace.texts)
assert 1500 < longest < 2600, longest  # as long as the trace is meant to be
assert trace.reusable > 12 * 1024, trace.reusable
assert trace.reused >= 0.95 * trace.reusable, f"{trace.reused} of {trace.reusable} tokens"
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    cold = pool.map(lambda job: post(job[0], "/v1/chat/completions", job[1][0]),
                    zip(others, trace.asked))
    for turn, (answer, (_, ids)) in enumerate(zip(cold, trace.asked)):
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, turn
        assert answer["choices"][0]["token_ids"] == ids, (turn, answer["choices"][0], ids)
print("ok")
