# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on the vocabularies of GGUF files: the ids of texts, as JSON.

llama_cpp_vocabulary.py FILES TEXTS    FILES, TEXTS: JSON arrays of paths and of texts
prints [[[id, ...], ...], ...]: by file, then by text
"""
import json
import sys

import llama_cpp

paths, texts = json.loads(sys.argv[1]), json.loads(sys.argv[2])
answers = []
for path in paths:
    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    answers.append([model.tokenize(text.encode(), add_bos=False, special=False) for text in texts])
print(json.dumps(answers))
