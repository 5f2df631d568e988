#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what batches are worth to a classifier behind HTTP.

infer.py HONE MODEL IMAGES [--clients N] [--requests N] [--rounds N]

Starts `hone serve MODEL` twice, with batches of one and of 32 images, and sends the images of a
folder from N clients, in turns. Every answer must name the class that the image has alone. Prints a
JSON document: images per second, median latency and mean batch of both, and the ratios of rounds.
"""

import argparse
import http.client
import json
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time


class Server:
    def __init__(self, options, batch, folder):
        self.port_file = pathlib.Path(folder, f"port{batch}")
        self.process = subprocess.Popen(
            [options.hone, "serve", options.model, "--port", "0", "--port-file",
             str(self.port_file), "--max-batch", str(batch), "-q"], stdout=subprocess.DEVNULL)
        while not self.port_file.exists():
            time.sleep(0.1)
        self.port = int(self.port_file.read_text())
        self.latencies, self.batches = [], []

    def ask(self, connection, image):
        connection.request("POST", "/v1/infer", image, {"Content-Type": "image/jpeg"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return body["results"][0]

    def client(self, images, names, first, count):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        for i in range(first, first + count):
            start = time.monotonic()
            result = self.ask(connection, images[i % len(images)])
            self.latencies.append(time.monotonic() - start)
            self.batches.append(result["batch"])
            assert result["classes"][0]["name"] == names[i % len(images)]

    def run(self, images, names, options):
        """Images per second of all clients together."""
        threads = [threading.Thread(target=self.client,
                                    args=(images, names, c * options.requests, options.requests))
                   for c in range(options.clients)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return options.clients * options.requests / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hone")
    parser.add_argument("model")
    parser.add_argument("images")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    files = sorted(pathlib.Path(options.images).rglob("*.jpg"))[:64]
    images = [file.read_bytes() for file in files]
    with tempfile.TemporaryDirectory() as folder:
        servers = [Server(options, batch, folder) for batch in (1, 32)]
        try:
            connection = http.client.HTTPConnection("127.0.0.1", servers[0].port)
            names = [servers[0].ask(connection, image)["classes"][0]["name"] for image in images]
            rates = [[], []]
            for _ in range(options.rounds):
                for server, own in zip(servers, rates):
                    own.append(server.run(images, names, options))
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()
    print(json.dumps({
        "images_per_s": [round(statistics.median(own), 1) for own in rates],
        "latency_ms": [round(1e3 * statistics.median(s.latencies), 1) for s in servers],
        "mean_batch": [round(statistics.mean(s.batches), 1) for s in servers],
        "ratios": [round(b / a, 2) for a, b in zip(*rates)],
    }, indent=1))


if __name__ == "__main__":
    main()
