# SPDX-License-Identifier: Apache-2.0
"""Times llama.cpp through its Python package. One JSON line in, one out.

{"op": "place", "depth": N, "sequences": S}    empties the cache and fills N positions of each of S
                                               sequences (untimed by the caller)
{"op": "prefill", "tokens": N}                 one prompt of N tokens into an empty cache
{"op": "decode", "tokens": N, "sequences": S}  N tokens of each sequence, one of each at a time; no
                                               sampling
"""

import argparse
import json
import random
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--ctx", type=int, required=True, help="tokens of one sequence")
    parser.add_argument("--sequences", type=int, required=True)
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
    # Each sequence has its own part of the cache, in units of 256 tokens.
    params.n_ctx = (options.ctx + 255) // 256 * 256 * options.sequences
    params.n_seq_max = options.sequences
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = options.threads
    context = llama_cpp.llama_init_from_model(model, params)
    memory = llama_cpp.llama_get_memory(context)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    generator = random.Random(7)

    batch = llama_cpp.llama_batch_init(512, 0, 1)
    lengths = [0] * options.sequences

    def decode(rows):
        """rows: (sequence, whether logits are wanted), at most 512."""
        batch.n_tokens = len(rows)
        for i, (sequence, wanted) in enumerate(rows):
            batch.token[i] = generator.randrange(vocabulary)
            batch.pos[i] = lengths[sequence]
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
            lengths[sequence] += 1
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(context)

    def prefill(sequence, count):
        for begin in range(0, count, 512):
            size = min(512, count - begin)
            decode([(sequence, begin + i == count - 1) for i in range(size)])

    def answer(question):
        sequences = question.get("sequences", 1)
        if question["op"] == "place":
            llama_cpp.llama_memory_clear(memory, True)
            lengths[:] = [0] * options.sequences
            for sequence in range(sequences):
                prefill(sequence, question["depth"])
        elif question["op"] == "prefill":
            prefill(0, question["tokens"])
        else:
            for _ in range(question["tokens"]):
                decode([(sequence, True) for sequence in range(sequences)])
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
