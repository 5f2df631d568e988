# SPDX-License-Identifier: Apache-2.0
"""Opens a model folder with AutoTokenizer and AutoModelForCausalLM.

transformers_open.py FOLDER TEXTS OUT    TEXTS: JSON {"texts": [...], "ids": [[...], ...]}
OUT/answer.json becomes {"ids": ids of each text, "decoded": the texts those ids give}, and
OUT/logits.f32 the logits [rows, vocab] of the given ids, one sequence after the other.
"""
import json
import pathlib
import sys

import torch
import transformers

folder, texts, out = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text()), sys.argv[3]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
ids = [tokenizer(text)["input_ids"] for text in texts["texts"]]
decoded = [tokenizer.decode(row, clean_up_tokenization_spaces=False) for row in ids]
(pathlib.Path(out) / "answer.json").write_text(json.dumps({"ids": ids, "decoded": decoded}))
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
with torch.no_grad(), open(pathlib.Path(out) / "logits.f32", "wb") as file:
    for row in texts["ids"]:
        model(torch.tensor([row])).logits[0].contiguous().numpy().tofile(file)
