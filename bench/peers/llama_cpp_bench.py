# SPDX-License-Identifier: Apache-2.0
"""Times llama.cpp through its Python package. One JSON line in, one out.

{"op": "place", "depth": N}    empties the cache and fills N positions (untimed by the caller)
{"op": "prefill", "tokens": N} one prompt of N tokens into an empty cache
{"op": "decode", "tokens": N}  N tokens one at a time; no sampling
"""

import argparse
import json
import random
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--ctx", type=int, required=True)
    options = parser.parse_args()
    try:
        import llama_cpp
    except ImportError as error:
        print(json.dumps({"ready": False, "error": str(error)}), flush=True)
        return

    silence = llama_cpp.llama_log_callback(lambda *_: None)  # must outlive every call below
    llama_cpp.llama_log_set(silence, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        options.model.encode(), llama_cpp.llama_model_default_params()
    )
    if not model:
        print(json.dumps({"ready": False, "error": "the model does not load"}), flush=True)
        return
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = options.ctx
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = options.threads
    context = llama_cpp.llama_init_from_model(model, params)
    memory = llama_cpp.llama_get_memory(context)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    generator = random.Random(7)

    def decode(count):
        tokens = [generator.randrange(vocabulary) for _ in range(count)]
        for begin in range(0, count, 512):
            part = tokens[begin : begin + 512]
            array = (llama_cpp.llama_token * len(part))(*part)
            if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(part))):
                raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(context)

    def answer(question):
        if question["op"] == "place":
            llama_cpp.llama_memory_clear(memory, True)
            if question["depth"]:
                decode(question["depth"])
        elif question["op"] == "prefill":
            decode(question["tokens"])
        else:
            for _ in range(question["tokens"]):
                decode(1)
        return {"done": True}

    greeting = {"ready": True, "version": llama_cpp.__version__, "threads": options.threads}
    print(json.dumps(greeting), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps(answer(json.loads(line))), flush=True)
        except Exception as error:  # the other side must hear of it
            print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main()
