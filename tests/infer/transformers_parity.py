# SPDX-License-Identifier: Apache-2.0
"""Writes random tiny Llama models and what the transformers package says of them.

OUT/00 … OUT/19: a Hugging Face folder each, with expected.json {prompt, greedy, vocab} and
logits.f32 [prompt, vocab]. Used by transformers_parity_test.cc.
"""

import itertools
import json
import pathlib
import sys

import torch
import transformers

PROMPT, GREEDY = 40, 20


def configurations():
    ropes = [
        {"rope_type": "default", "rope_theta": 10000.0},
        {
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ]
    grid = list(itertools.product([1, 2, 8], [False, True], ropes))  # 12
    for i, (kv_heads, tied, rope) in enumerate(grid + grid[:8]):
        second = i >= len(grid)
        yield {
            "vocab_size": 97 if second else 160,
            "hidden_size": 64,
            "intermediate_size": 88 if second else 128,
            "num_hidden_layers": 3 if second else 2,
            "num_attention_heads": 8,
            "num_key_value_heads": kv_heads,
            "head_dim": [8, 12, 16, 20][i % 4],
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-6 if second else 1e-5,
            "tie_word_embeddings": tied,
            "attention_bias": i % 3 == 1,
            "mlp_bias": i % 5 == 2,
            "rope_parameters": rope,
            "bos_token_id": 1,
            "eos_token_id": [2, 3] if second else 2,
        }


def write(folder, seed, values):
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if "bias" in name or "norm" in name else 0.15
            parameter.add_(torch.randn_like(parameter) * scale)
    model.save_pretrained(folder)
    tokens = torch.randint(0, values["vocab_size"], (1, PROMPT))
    with torch.no_grad():
        logits = model(tokens).logits[0]
        ids, greedy, margins = tokens, [], []
        for _ in range(GREEDY):
            row = model(ids).logits[0, -1]
            best = row.topk(2).values
            margins.append(float((best[0] - best[1]) / row.abs().max()))
            greedy.append(int(row.argmax()))
            ids = torch.cat([ids, torch.tensor([[greedy[-1]]])], dim=1)
    logits.contiguous().numpy().tofile(folder / "logits.f32")
    expected = {
        "prompt": tokens[0].tolist(),
        "greedy": greedy,
        "vocab": values["vocab_size"],
        "least_margin": min(margins),
    }
    (folder / "expected.json").write_text(json.dumps(expected))


def main():
    out = pathlib.Path(sys.argv[1])
    for index, values in enumerate(configurations()):
        write(out / f"{index:02d}", 100 + index, values)


if __name__ == "__main__":
    main()
