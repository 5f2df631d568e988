#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how a long prompt of one client delays another one.

fairness.py HONE MODEL [--prompt TOKENS] [--streams N]

Starts `hone serve` with two keys. One client streams N texts and now and then sends a request of 20
tokens, first alone, then while the other client's prompt is read. Prints a JSON document: the time
to the first token of the short requests and the 99th percentile of the time between tokens, alone
and beside the prompt. A flood of a third client then gets 429 while the first one is served.
"""

import argparse
import asyncio
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

PLAY = "All work and no play makes Jack a dull boy. "  # 11 tokens


async def stream(port, key, prompt, tokens, times=None):
    """Streams a completion; returns (status, seconds to the first token)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "stream": True, "temperature": 0,
                       "ignore_eos": True}).encode()
    start, first = time.monotonic(), None
    writer.write(
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    status = int((await reader.readline()).split()[1])
    try:
        while line := await reader.readline():
            if line.startswith(b"data: {") and b'"text"' in line:
                now = time.monotonic()
                first = first or now - start
                if times is not None:
                    times.append(now)
    finally:
        writer.close()
    return status, first


def between(times, begin, end):
    """The times between tokens that came from begin to end."""
    return [b - a for one in times for a, b in zip(one, one[1:]) if begin <= b <= end]


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


async def shorts(port, count, draw):
    """Times to the first token of requests of 20 tokens, one after the other."""
    out = []
    for _ in range(count):
        ids = [draw.randrange(1000, 2000) for _ in range(20)]
        _, first = await stream(port, "key-of-ann", ids, 4)
        out.append(first)
        await asyncio.sleep(0.2)
    return out


async def measure(port, options):
    draw = random.Random(1)
    times = [[] for _ in range(options.streams)]
    streams = [asyncio.create_task(stream(port, "key-of-ann", f"Story {i}:", 4000, times[i]))
               for i in range(options.streams)]
    await asyncio.sleep(3)
    begin = time.monotonic()
    alone = await shorts(port, 10, draw)
    middle = time.monotonic()
    long = asyncio.create_task(
        stream(port, "key-of-bob", PLAY * (options.prompt // 11), 4))
    await asyncio.sleep(0.5)
    beside = []
    while not long.done() and len(beside) < 40:
        beside += await shorts(port, 1, draw)
    end = time.monotonic()
    read_s = round(long.result()[1], 1) if long.done() else None
    long.cancel()
    await asyncio.sleep(0.5)
    flood = await asyncio.gather(*(stream(port, "key-of-eve", f"Flood {i}", 4) for i in range(60)))
    status, _ = await stream(port, "key-of-ann", "Still here?", 4)
    for one in streams:
        one.cancel()
    p99 = [quantile(between(times, *span), 0.99) for span in ((begin, middle), (middle, end))]
    return {
        "first_token_alone_s": round(statistics.median(alone), 3),
        "first_token_beside_s": round(statistics.median(beside), 3),
        "first_token_beside_max_s": round(max(beside), 3),
        "between_p99_alone_ms": round(1e3 * p99[0], 1),
        "between_p99_beside_ms": round(1e3 * p99[1], 1),
        "between_p99_ratio": round(p99[1] / p99[0], 2),
        "long_prompt_first_token_s": read_s,  # null: it still read
        "seconds_beside": round(end - middle, 1),
        "flood": {str(code): sum(s == code for s, _ in flood) for code in (200, 429)},
        "served_beside_the_flood": status == 200,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hone")
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=30000)
    parser.add_argument("--streams", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keys, port_file = pathlib.Path(folder, "keys"), pathlib.Path(folder, "port")
        keys.write_text("ann:key-of-ann\nbob:key-of-bob\neve:key-of-eve\n")
        server = subprocess.Popen(
            [options.hone, "serve", options.model, "--port", "0", "--port-file", str(port_file),
             "--api-key-file", str(keys), "--max-queue", "64", "-q"], stdout=subprocess.DEVNULL)
        try:
            while not port_file.exists():
                time.sleep(0.05)
            port = int(port_file.read_text())
            print(json.dumps(asyncio.run(measure(port, options)), indent=1))
        finally:
            server.terminate()


main()
