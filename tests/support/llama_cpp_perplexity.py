# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's perplexity of token ids, as `hone eval --token-ids IDS --window N` measures it.

llama_cpp_perplexity.py FILES IDS WINDOW    FILES, IDS: JSON arrays of paths and of ids
prints [{"tokens": …, "perplexity": …}, …].
"""
import json
import sys

import llama_cpp
import numpy as np


def windows_of(model, ids, length):
    """Windows begin with BOS if the vocabulary says so, and do not overlap."""
    start = [model.token_bos()] if model._model.add_bos_token() else []
    step = length - 1
    if start and ids[0] == start[0]:
        ids = ids[1:]
    if start:
        return [start + ids[at:at + step] for at in range(0, len(ids), step)]
    windows = [ids[at:at + length] for at in range(0, len(ids), length)]
    return [window for window in windows if len(window) > 1]


def measure(file, ids, length):
    model = llama_cpp.Llama(file, n_ctx=length, n_batch=length, n_threads=1, logits_all=True,
                            verbose=False)
    loss, count = 0.0, 0
    for window in windows_of(model, ids, length):
        model.reset()
        model.eval(window)
        logits = np.array(model.scores[:len(window) - 1], dtype=np.float64)
        largest = logits.max(axis=1)
        sums = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest
        loss += (sums - logits[np.arange(len(window) - 1), window[1:]]).sum()
        count += len(window) - 1
    return {"tokens": count, "perplexity": float(np.exp(loss / count))}


files, ids, window = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
print(json.dumps([measure(file, ids, window) for file in files]))
