# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch: a byte-level Llama-like model of 1.28 M parameters, 929 steps of 16 x 128 with
torch.optim.AdamW. The peer of `hone train lm` with defaults; prints one JSON document.

    python bench/peers/plain_pytorch_lm.py TEXT [--steps 929] [--threads N] [--seed 0]

Held out: the last tenth of the bytes, in windows of the context without overlap, every byte but a
window's first predicted. `seconds` is training alone, without start-up and validation.
"""

import argparse
import json
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, HIDDEN, INTERMEDIATE, LAYERS, HEADS, CONTEXT, BATCH = 256, 160, 432, 4, 5, 128, 16
LEARNING_RATE, WARM_UP, WEIGHT_DECAY, CLIP = 3e-3, 50, 0.1, 1.0


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = (
            nn.Linear(HIDDEN, INTERMEDIATE, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INTERMEDIATE, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        h = self.input_layernorm(x)
        q, k, v = (p(h).view(batch, length, HEADS, -1).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).reshape(batch, length, HIDDEN))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        dim = HIDDEN // HEADS
        frequency = 10000 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = torch.arange(CONTEXT, dtype=torch.float64)[:, None] * frequency
        self.register_buffer("cos", angle.cos().float())
        self.register_buffer("sin", angle.sin().float())
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * LAYERS) if residual else 1))

    def forward(self, ids):
        x = self.embed_tokens(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def held_out_bits_per_byte(model, data):
    nats, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(data) - 1, CONTEXT):
            window = data[begin:begin + CONTEXT].long()
            if len(window) < 2:
                break
            logits = model(window[None, :-1])[0]
            nats += F.cross_entropy(logits, window[1:], reduction="sum").item()
            count += len(window) - 1
    return nats / count / math.log(2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=929)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    with open(options.text, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    border = len(data) - len(data) // 10
    train, held_out = data[:border], data[border:]
    model = Llama()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)

    def schedule(step):
        if step < WARM_UP:
            return (step + 1) / WARM_UP
        done = (step - WARM_UP) / max(1, options.steps - WARM_UP)
        return 0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    begin = time.monotonic()
    for step in range(options.steps):
        offsets = torch.randint(len(train) - CONTEXT, (BATCH,)).tolist()
        rows = torch.stack([train[o:o + CONTEXT + 1] for o in offsets]).long()
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", file=sys.stderr)
    seconds = time.monotonic() - begin
    print(json.dumps({
        "impl": "plain_pytorch",
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": options.steps,
        "seconds": seconds,
        "tokens_per_s": options.steps * BATCH * CONTEXT / seconds,
        "train_loss": loss.item(),
        "val_bits_per_byte": held_out_bits_per_byte(model, held_out),
        "threads": torch.get_num_threads(),
    }))


if __name__ == "__main__":
    main()
