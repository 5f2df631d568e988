# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on GGUF files, with caches in f32: greedy continuations of token ids, as JSON.

llama_cpp_ids.py JOBS TOKENS    JOBS: JSON array of [file, [ids]]
prints [[id, …], …].
"""
import json
import sys

import llama_cpp

jobs, count = json.loads(sys.argv[1]), int(sys.argv[2])
rows = []
for path, ids in jobs:
    model = llama_cpp.Llama(path, n_ctx=128, n_threads=1, verbose=False, flash_attn=False,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    out = []
    for token in model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
        out.append(token)
        if len(out) == count:
            break
    rows.append(out)
print(json.dumps(rows))
