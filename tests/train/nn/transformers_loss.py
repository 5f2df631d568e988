# SPDX-License-Identifier: Apache-2.0
"""Tiny random Llama models of transformers, and their losses.

transformers_loss.py FOLDER    saves FOLDER/m0, m1, … and prints, as JSON, for each of them ids
                               [batch, positions] and the mean loss of predicting each id but the
                               first of a row
"""
import json
import pathlib
import sys

import torch
import transformers

PLAIN = {"rope_type": "default", "rope_theta": 500.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
CASES = [dict(num_key_value_heads=4, head_dim=8, tie_word_embeddings=True, rope_parameters=PLAIN),
         dict(num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, rms_norm_eps=1e-3,
              rope_parameters=PLAIN),
         dict(num_key_value_heads=1, head_dim=8, attention_bias=True, mlp_bias=True,
              rope_parameters=PLAIN),
         dict(num_key_value_heads=2, head_dim=8, rope_parameters=LLAMA3)]

torch.manual_seed(3)
answers = []
for i, case in enumerate(CASES):
    config = transformers.LlamaConfig(vocab_size=61, hidden_size=32, intermediate_size=48,
                                      num_hidden_layers=2, num_attention_heads=4,
                                      max_position_embeddings=64, **case)
    model = transformers.LlamaForCausalLM(config).eval()
    for parameter in model.parameters():  # far from the uniform distribution
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(pathlib.Path(sys.argv[1]) / f"m{i}")
    ids = torch.randint(0, 61, (3, 33))
    with torch.no_grad():
        loss = model(ids, labels=ids).loss.item()
    answers.append({"ids": ids.tolist(), "loss": loss})
print(json.dumps(answers))
