# SPDX-License-Identifier: Apache-2.0
"""Times ik_llama.cpp through its program llama-bench, one process for each answer, so that loading
and repacking (-rtr 1) are not counted. One JSON line in, one out.

{"op": "prefill", "tokens": N}             one prompt of N tokens into an empty cache
{"op": "decode", "tokens": N, "depth": D}  N tokens one at a time after D others
"""

import argparse
import json
import subprocess
import sys


def seconds(options, question):
    if question["op"] == "prefill":
        work = ["-p", str(question["tokens"]), "-n", "0"]
    else:
        work = ["-p", "0", "-n", "0", "-gp", f"{question['depth']},{question['tokens']}"]
    command = [options.program, "-m", options.model, "-t", str(options.threads)]
    command += ["-rtr", "1", "-r", "1", "-o", "json", *work]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-200:])
    (test,) = json.loads(done.stdout)
    return test["samples_ns"][0] * 1e-9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    try:
        seconds(options, {"op": "decode", "tokens": 1, "depth": 1})
    except Exception as error:  # absent, or unable to run here
        print(json.dumps({"ready": False, "error": f"{type(error).__name__}: {error}"}), flush=True)
        return
    print(json.dumps({"ready": True, "threads": options.threads}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps({"seconds": seconds(options, json.loads(line))}), flush=True)
        except Exception as error:  # the other side must hear of it
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
