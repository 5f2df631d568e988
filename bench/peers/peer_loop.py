# SPDX-License-Identifier: Apache-2.0
"""The answers of other software to hone's questions. One JSON line in, one out.

{"op": "wake"}  runs something small, so that the threads of the software do not sleep
{"op": "step"}  runs what is measured; the answer holds its seconds by this process's clock
"""

import json
import sys
import time


def answer(question, step, wake):
    if question["op"] == "wake":
        wake()
        return {"done": True}
    begin = time.monotonic()
    step()
    return {"seconds": time.monotonic() - begin}


def serve(start, options, answers=sys.stdout):
    """start(options) gives the first answer, what a step runs and what waking runs."""

    def tell(message):
        print(json.dumps(message), file=answers, flush=True)

    try:
        greeting, step, wake = start(options)
    except Exception as error:  # absent, or unable to run here
        tell({"ready": False, "error": f"{type(error).__name__}: {error}"})
        return
    tell({"ready": True, "threads": options.threads, **greeting})
    for line in sys.stdin:
        try:
            tell(answer(json.loads(line), step, wake))
        except Exception as error:  # the other side must hear of it
            tell({"error": f"{type(error).__name__}: {error}"})
