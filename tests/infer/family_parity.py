# SPDX-License-Identifier: Apache-2.0
"""Writes random tiny models of every family and what the transformers package says of them.

OUT/FAMILY-0 … : a Hugging Face folder each, with expected.json {prompt, greedy, vocab} and
logits.f32 [prompt, vocab]. Used by family_parity_test.cc.
"""

import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

PROMPT, GREEDY = 40, 20
BASE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 88,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

# How a folder is written: "dtype", "shards", "older" (rope_theta and rope_scaling), "buffers",
# "bare" (names without the model's prefix). All other keys are those of the configuration.
COMMON = [
    {"num_key_value_heads": 8, "tie_word_embeddings": True},
    {"num_key_value_heads": 1, "head_dim": 12, "eos_token_id": [2, 3], "older": True},
    {"head_dim": 20, "rope_parameters": LLAMA3, "shards": True},
    {"head_dim": 16, "rope_parameters": YARN, "older": True, "dtype": "bfloat16"},
    {"head_dim": 8, "rope_parameters": LINEAR, "dtype": "float16", "tie_word_embeddings": True},
    {"num_hidden_layers": 2, "rms_norm_eps": 1e-5, "buffers": True, "older": True},
]
SWITCH = [
    {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "head_dim": 16},
    {"use_sliding_window": False, "sliding_window": 8, "head_dim": 16},
]
FAMILIES = {
    "llama": ("Llama", COMMON + [{"attention_bias": True, "mlp_bias": True}]),
    "mistral": (
        "Mistral",
        [{"sliding_window": n, **one} for n, one in zip([8, None, 4096, 8, 3, 33], COMMON)],
    ),
    "qwen2": ("Qwen2", COMMON + SWITCH),
    "qwen3": ("Qwen3", COMMON + SWITCH + [{"attention_bias": True, "head_dim": 16}]),
    "gemma2": (
        "Gemma2",
        [
            {"query_pre_attn_scalar": scalar, "sliding_window": window, **{"head_dim": 8, **one}}
            for (scalar, window), one in zip(
                [(8, 8), (12, 4096), (5, 3), (16, 8), (24, 8), (8, 33)],
                [{k: v for k, v in c.items() if k != "tie_word_embeddings"} for c in COMMON],
            )
        ]
        + [
            {"attn_logit_softcapping": None, "final_logit_softcapping": None, "head_dim": 16},
            {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "head_dim": 16},
        ],
    ),
    "gemma3": (
        "Gemma3Text",
        [
            {"query_pre_attn_scalar": 8, "sliding_window": 8, "head_dim": 8},
            {"query_pre_attn_scalar": 16, "sliding_window": 8, "head_dim": 16, "older": True},
            {"num_hidden_layers": 7, "sliding_window": 5, "head_dim": 12},
            {
                "head_dim": 16,
                "num_hidden_layers": 2,
                "sliding_window": 8,
                "layer_types": ["full_attention", "sliding_attention"],
                "rope_parameters": {
                    "full_attention": LINEAR,
                    "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                },
            },
            {"head_dim": 16, "sliding_window": 8, "dtype": "bfloat16", "eos_token_id": [2, 3]},
            {"head_dim": 20, "num_key_value_heads": 8, "shards": True, "sliding_window": 100},
        ],
    ),
    "phi3": (
        "Phi3",
        [
            {"num_key_value_heads": 8},
            {"num_key_value_heads": 1, "sliding_window": 8, "older": True},
            {"hidden_size": 128, "partial_rotary_factor": 0.5},
            {"num_key_value_heads": 4, "dtype": "bfloat16", "shards": True},
            {"tie_word_embeddings": True, "sliding_window": 33, "eos_token_id": [2, 3]},
            {"num_hidden_layers": 2, "dtype": "float16", "hidden_size": 128},
        ],
    ),
    "olmo2": ("Olmo2", COMMON + [{"attention_bias": True}]),
    "gpt2": (
        "GPT2",
        [
            {},
            {"scale_attn_by_inverse_layer_idx": True, "buffers": True},
            {"scale_attn_weights": False, "n_inner": 100, "bare": True},
            {"dtype": "bfloat16", "shards": True},
            {"dtype": "float16", "eos_token_id": [2, 3], "buffers": True, "bare": True},
            {"tie_word_embeddings": False, "n_layer": 2, "layer_norm_epsilon": 1e-3},
        ],
    ),
}
GPT2 = {
    "vocab_size": 96,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CLASSES = {"Gemma3Text": "Gemma3ForCausalLM", "GPT2": "GPT2LMHeadModel"}


def build(name, values, seed):
    torch.manual_seed(seed)
    config = getattr(transformers, name + "Config")(**values)
    model = getattr(transformers, CLASSES.get(name, name + "ForCausalLM"))(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            vector = parameter.dim() == 1
            parameter.add_(torch.randn_like(parameter) * (0.3 if vector else 0.15))
    return model.float().eval()


def rewrite_config(folder):
    """The style of versions before 5: rope_theta and rope_scaling."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    path.write_text(json.dumps(config))


def rewrite_weights(folder, name, options):
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    if options.get("bare"):
        tensors = {k.removeprefix("transformer."): v for k, v in tensors.items()}
    if options.get("buffers"):
        if name == "GPT2":
            prefix = "" if options.get("bare") else "transformer."
            mask = torch.ones(1, 1, 128, 128, dtype=torch.bool).tril()
            tensors[prefix + "h.0.attn.bias"] = mask
            tensors[prefix + "h.0.attn.masked_bias"] = torch.tensor(-1e4)
        else:
            tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def write(folder, name, seed, row):
    options = {k: row[k] for k in ("dtype", "shards", "older", "buffers", "bare") if k in row}
    values = {**(GPT2 if name == "GPT2" else BASE), **row}
    for key in options:
        del values[key]
    if name in ("Qwen2", "Mistral") and "head_dim" not in values:
        values["head_dim"] = values["hidden_size"] // values["num_attention_heads"]
    model = build(name, values, seed).to(getattr(torch, options.get("dtype", "float32")))
    model.save_pretrained(folder, max_shard_size="60KB" if options.get("shards") else "1GB")
    if options.get("older"):
        rewrite_config(folder)
    if options.get("bare") or options.get("buffers"):
        rewrite_weights(folder, name, options)
    rounded = model.state_dict()
    model = build(name, values, seed)  # casting it would also round buffers such as inv_freq
    model.load_state_dict({k: v.float() for k, v in rounded.items()})
    expect(folder, model)


def expect(folder, model):
    vocab = model.config.vocab_size
    tokens = torch.randint(4, vocab, (1, PROMPT))
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
        "vocab": vocab,
        "least_margin": min(margins),
    }
    (folder / "expected.json").write_text(json.dumps(expected))


def main():
    out = pathlib.Path(sys.argv[1])
    for family, (name, rows) in FAMILIES.items():
        for index, row in enumerate(rows):
            write(out / f"{family}-{index}", name, 100 + index, row)


if __name__ == "__main__":
    main()
