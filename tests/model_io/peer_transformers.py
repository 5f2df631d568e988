# SPDX-License-Identifier: Apache-2.0
"""transformers as oracle for the Hugging Face reader and writer.

save FOLDER     random tiny Llama models saved by transformers, each with expected.json beside it:
                the inverse frequencies and attention factor of its rotary embedding, and for each
                tensor [rows, cols, first value, last value, sum of all values in double]
open FOLDER     opens what hone wrote; prints one JSON document: for each tensor the same five, the
                type of the weights, the names that it misses, and the ids of each line of
                FOLDER/texts.txt; or {"refused": why}
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding


def describe(state):
    rows = {}
    for name, tensor in state.items():
        flat = tensor.detach().to(torch.float64).flatten()
        shape = list(tensor.shape)
        rows[name] = [shape[0] if len(shape) > 1 else 1, shape[-1], flat[0].item(), flat[-1].item(),
                      flat.sum().item()]
    return rows


def rope_of(kind):
    if kind == "llama3":
        return {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32}
    if kind == "yarn":
        return {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                "original_max_position_embeddings": 32}
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    return {"rope_type": "default", "rope_theta": 10000.0}


def save(folder):
    torch.manual_seed(7)
    kinds = ["default", "llama3", "yarn", "linear"]
    for i in range(8):
        config = transformers.LlamaConfig(
            vocab_size=96, hidden_size=64, intermediate_size=80, num_hidden_layers=2,
            num_attention_heads=8, num_key_value_heads=[1, 2, 8][i % 3], head_dim=[8, 16][i % 2],
            max_position_embeddings=128, tie_word_embeddings=i % 2 == 0, attention_bias=i % 4 == 1,
            mlp_bias=i % 4 == 1, rope_parameters=rope_of(kinds[i % 4]), eos_token_id=[2, 3])
        model = transformers.LlamaForCausalLM(config).to(
            [torch.float32, torch.bfloat16, torch.float16][i % 3])
        for parameter in model.parameters():  # biases start at zero: make them visible
            torch.nn.init.normal_(parameter, std=0.5)
        path = pathlib.Path(folder) / f"m{i}"
        model.save_pretrained(path, max_shard_size="40KB" if i == 3 else "1GB")
        # A fresh one: casting the model has rounded the buffer inside it.
        rotary = LlamaRotaryEmbedding(config)
        state = {k: v for k, v in model.state_dict().items()
                 if not (config.tie_word_embeddings and k == "lm_head.weight")}
        expected = {"tensors": describe(state), "attention_factor": rotary.attention_scaling,
                    "inverse": rotary.inv_freq.double().tolist()}
        (path / "expected.json").write_text(json.dumps(expected))


def open_folder(folder):
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", output_loading_info=True)
    except ValueError as error:
        print(json.dumps({"refused": str(error)}))
        return
    state = {k: v for k, v in model.state_dict().items()
             if not (model.config.tie_word_embeddings and k == "lm_head.weight")}
    out = {"tensors": describe(state), "inverse": model.model.rotary_emb.inv_freq.double().tolist()}
    out["dtype"] = str(model.dtype)
    out["missing"] = sorted(report["missing_keys"])
    texts = pathlib.Path(folder) / "texts.txt"
    if texts.exists():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        out["ids"] = [tokenizer(line)["input_ids"] for line in texts.read_text().split("\n")]
    print(json.dumps(out))


{"save": save, "open": open_folder}[sys.argv[1]](sys.argv[2])
