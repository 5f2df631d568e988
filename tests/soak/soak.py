#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `hone serve` under load and checks what it promises.

soak.py HONE MODEL [--minutes M] [--seed S] [options of hone serve]

The phases: equal texts at 1, 2, 8 and 16 streams; a load of twice what the server takes, with
clients that go, clients that read slowly, answers by schemas and idle connections; the time in
which a client that has gone frees its place; SIGKILL and restart; SIGTERM. Prints a JSON document
and exits with 1 if a check fails. Needs nothing but Python.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

STREAMS = 16  # texts that run together
QUEUE = 16  # texts that may wait
IDLE = 1000  # connections without a request
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog"]},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["name", "age", "kind", "day"],
    "additionalProperties": False,
}
PROMPTS = [f"Once upon a time there were {i} little birds" for i in range(24)]


class Server:
    """A `hone serve` process."""

    def __init__(self, arguments, port=0):
        self.folder = tempfile.TemporaryDirectory()
        port_file = pathlib.Path(self.folder.name, "port")
        self.log = open(pathlib.Path(self.folder.name, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            arguments + ["--port", str(port), "--port-file", str(port_file)]
            + ["--max-seqs", str(STREAMS), "--max-queue", str(QUEUE), "--metrics-open"]
            + ["--max-connections", str(IDLE + 400), "--drain-s", "20"],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + 120
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                sys.exit(f"soak: the server did not start:\n{self.log.read()}")
            time.sleep(0.02)
        self.port = int(port_file.read_text())

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(re.findall(r"^(RssAnon|VmSwap):\s+(\d+)", status, re.M))
        return sum(int(value) for value in fields.values())


async def request(port, method, path, body=None, read=None, timeout=300):
    """Sends one request on its own connection; returns (status, headers, body).

    `read` may read the body in its own way, from (reader, writer), and its result is the body.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        writer.write(head.encode() + b"\r\n" + data)
        await writer.drain()
        status = int((await asyncio.wait_for(reader.readline(), timeout)).split()[1])
        headers = {}
        while line := (await reader.readline()).strip():
            name, value = line.split(b":", 1)
            headers[name.decode().lower()] = value.strip().decode()
        if status == 200 and read is not None:
            return status, headers, await read(reader, writer)
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, await read_chunks(reader)
        return status, headers, await asyncio.wait_for(reader.read(), timeout)
    finally:
        writer.close()


async def read_chunks(reader, pause=0.0, most=None):
    """The chunked body; with `most`, only so many chunks."""
    out, count = b"", 0
    while most is None or count < most:
        size = int((await asyncio.wait_for(reader.readline(), 300)).strip() or b"0", 16)
        out += (await reader.readexactly(size + 2))[:-2]
        if size == 0:
            return out
        count += 1
        if pause:
            await asyncio.sleep(pause)
    return out


def text_of_events(body):
    """The text and the reason for the end of a streamed completion."""
    text, finish, done = "", None, False
    for line in body.decode().split("\n"):
        if line == "data: [DONE]":
            done = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            if "error" in event:
                return text, "error", False
            for choice in event["choices"]:
                text += choice["text"]
                finish = choice["finish_reason"] or finish
    return text, finish, done


async def complete(port, prompt, tokens, stream=True, **more):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": stream, **more}
    status, headers, data = await request(port, "POST", "/v1/completions", body)
    if status != 200:
        return status, headers, None
    if stream:
        return status, headers, text_of_events(data)
    choice = json.loads(data)["choices"][0]
    return status, headers, (choice["text"], choice["finish_reason"], True)


async def metrics(port):
    _, _, body = await request(port, "GET", "/metrics")
    return {
        name: float(value)
        for name, value in re.findall(r"^(hone_\w+) ([\d.e+-]+)$", body.decode(), re.M)
    }


def unbalanced(seen):
    accepted = seen["hone_requests_accepted_total"]
    ended = sum(seen[f"hone_requests_{name}_total"] for name in ("finished", "failed", "cancelled"))
    open_ = seen["hone_requests_running"] + seen["hone_requests_waiting"]
    return accepted != ended + open_


class Soak:
    def __init__(self, server, seconds, seed):
        self.server, self.port = server, server.port
        self.seconds, self.random = seconds, random.Random(seed)
        self.known, self.counts, self.problems = {}, {}, []

    def count(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1

    def check(self, holds, problem):
        if not holds and len(self.problems) < 20:
            self.problems.append(problem)

    async def equal_texts(self):
        """Texts at temperature 0 do not depend on how many run together."""
        for streams in (1, 2, 8, 16):
            for begin in range(0, len(PROMPTS), streams):
                group = PROMPTS[begin : begin + streams]
                answers = await asyncio.gather(*(complete(self.port, p, 48) for p in group))
                for prompt, (status, _, answer) in zip(group, answers):
                    text = answer[0] if answer else f"status {status}"
                    first = self.known.setdefault(prompt, text)
                    self.check(text == first, f"{streams} streams: {prompt!r} has another text")

    def refused(self, status, headers):
        """Whether it was a refusal, which has to be one that clients understand."""
        if status == 200:
            return False
        self.count(f"status {status}")
        wait = headers.get("retry-after", "")
        good = status in (429, 503) and wait.isdigit() and 1 <= int(wait) <= 120
        self.check(good, f"status {status} with Retry-After {wait!r}")
        return True

    async def client(self, deadline):
        while time.monotonic() < deadline:
            kind = self.random.choice(["text", "text", "whole", "schema", "gone", "slow", "bad"])
            prompt = self.random.choice(PROMPTS)
            self.count(kind)
            try:
                await getattr(self, f"client_{kind}")(prompt)
            except (ConnectionError, asyncio.IncompleteReadError, IndexError) as error:
                self.check(False, f"{kind}: {error!r}")
            await asyncio.sleep(self.random.random() * 0.02)

    async def client_text(self, prompt, stream=True):
        status, headers, answer = await complete(self.port, prompt, 48, stream)
        if self.refused(status, headers):
            return
        self.check(answer[2] and answer[0] == self.known[prompt], f"{prompt!r}: lost or mixed")

    async def client_whole(self, prompt):
        await self.client_text(prompt, stream=False)

    async def client_schema(self, prompt):
        status, headers, answer = await complete(
            self.port, prompt, 200, temperature=1,
            response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
        if self.refused(status, headers) or answer[1] != "stop":
            return
        try:
            value = json.loads(answer[0])
            good = list(value) == list(SCHEMA["properties"]) and value["kind"] in ("cat", "dog")
            good = good and len(value["name"]) <= 12 and 0 <= value["age"] <= 120
            good = good and time.strptime(value["day"], "%Y-%m-%d") is not None
        except (ValueError, KeyError) as error:
            good = error is None
        self.check(good, f"invalid answer: {answer[0]!r}")

    async def client_gone(self, prompt):
        async def read(reader, writer):
            await read_chunks(reader, most=self.random.randrange(4))
            writer.transport.abort()

        body = {"prompt": prompt, "max_tokens": 400, "stream": True, "ignore_eos": True}
        status, headers, _ = await request(self.port, "POST", "/v1/completions", body, read)
        self.refused(status, headers)

    async def client_slow(self, prompt):
        async def read(reader, _):
            return await read_chunks(reader, pause=0.02)

        body = {"prompt": prompt, "max_tokens": 48, "temperature": 0, "stream": True}
        status, headers, data = await request(self.port, "POST", "/v1/completions", body, read)
        if not self.refused(status, headers):
            text, _, done = text_of_events(data)
            self.check(done and text == self.known[prompt], f"slow reader of {prompt!r}: lost")

    async def client_bad(self, _):
        body = self.random.choice([
            {"prompt": 7}, {"prompt": "a", "max_tokens": -1}, {"prompt": "a", "temperature": "hot"},
            {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {
                "schema": {"not": {}}}}}, {"prompt": "word " * 200000}, []])
        status, _, data = await request(self.port, "POST", "/v1/completions", body)
        message = json.loads(data)["error"]["message"]
        self.check(status == 400 and message, f"a malformed request got {status}: {data[:200]!r}")

    async def watch(self, deadline, samples):
        while time.monotonic() < deadline:
            seen = await metrics(self.port)
            self.check(not unbalanced(seen), "requests are in no state, or in two")
            samples.append((seen["hone_requests_accepted_total"], self.server.resident_kib()))
            await asyncio.sleep(1)

    async def load(self):
        idle = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(IDLE)]
        deadline, samples = time.monotonic() + self.seconds, []
        clients = [self.client(deadline) for _ in range(2 * (STREAMS + QUEUE))]
        await asyncio.gather(self.watch(deadline, samples), *clients)
        for _, writer in idle:
            writer.close()
        # The slope of memory over requests, once everything has been used.
        later = samples[len(samples) // 3 :]
        mean = [sum(column) / len(later) for column in zip(*later)]
        over = sum((x - mean[0]) ** 2 for x, _ in later)
        slope = sum((x - mean[0]) * (y - mean[1]) for x, y in later) / over if over else 0
        self.counts["requests"] = int(samples[-1][0])
        self.counts["KiB per request"] = round(slope, 3)
        self.check(slope <= 2, f"memory grows by {slope:.2f} KiB a request")

    async def frees_at_once(self):
        """A client that has gone frees its place within 250 ms."""
        worst = 0
        for _ in range(5):
            async def read(reader, writer):
                await read_chunks(reader, most=2)
                writer.transport.abort()

            body = {"prompt": PROMPTS[0], "max_tokens": 400, "stream": True, "ignore_eos": True}
            await request(self.port, "POST", "/v1/completions", body, read)
            start = time.monotonic()
            while (await metrics(self.port))["hone_requests_running"] > 0:
                if time.monotonic() > start + 10:
                    break
                await asyncio.sleep(0.005)
            worst = max(worst, time.monotonic() - start)
        self.counts["seconds until a place is free"] = round(worst, 3)
        self.check(worst <= 0.25, f"a place was free after {worst:.2f} s")

    async def ends_well(self):
        """SIGTERM lets running texts end."""
        running = [asyncio.create_task(complete(self.port, p, 200, ignore_eos=True))
                   for p in PROMPTS[:4]]
        await asyncio.sleep(0.1)
        self.server.process.send_signal(signal.SIGTERM)
        for status, _, answer in await asyncio.gather(*running):
            self.check(status == 200 and answer[2], "SIGTERM cut a text")
        self.check(self.server.process.wait(30) == 0, "the exit status after SIGTERM is not 0")


async def killed(arguments, problems):
    """After SIGKILL under load, a new server at the same port serves at once."""
    server = Server(arguments)
    tasks = [asyncio.create_task(complete(server.port, p, 400, ignore_eos=True)) for p in PROMPTS]
    await asyncio.sleep(0.5)
    server.process.kill()
    server.process.wait()
    await asyncio.gather(*tasks, return_exceptions=True)
    start = time.monotonic()
    again = Server(arguments, server.port)
    status, _, _ = await complete(again.port, PROMPTS[0], 8)
    if status != 200:
        problems.append(f"after SIGKILL and restart: {status}")
    again.process.terminate()
    again.process.wait(30)
    return round(time.monotonic() - start, 2)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hone")
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options, further = parser.parse_known_args()
    arguments = [options.hone, "serve", options.model, *further]
    server = Server(arguments)
    soak = Soak(server, 60 * options.minutes, options.seed)
    try:
        await soak.equal_texts()
        await soak.load()
        await soak.frees_at_once()
        await soak.ends_well()
    finally:
        server.process.kill()
    restart = await killed(arguments, soak.problems)
    soak.counts["seconds of a restart"] = restart
    print(json.dumps({"counts": soak.counts, "problems": soak.problems}, indent=1))
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    asyncio.run(main())
