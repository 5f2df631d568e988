# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on a GGUF file: greedy continuations, as JSON.

llama_cpp_greedy.py FILE PROMPTS TOKENS    PROMPTS: JSON array of texts
prints [{"prompt_ids": [...], "ids": [...]}, ...].
"""
import json
import sys

import llama_cpp

path, prompts, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
model = llama_cpp.Llama(path, n_ctx=256, n_threads=1, verbose=False)
rows = []
for prompt in prompts:
    ids = model.tokenize(prompt.encode(), add_bos=True)
    model.reset()
    out = []
    for token in model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
        out.append(token)
        if len(out) == count:
            break
    rows.append({"prompt_ids": ids, "ids": out})
print(json.dumps(rows))
