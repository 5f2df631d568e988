# SPDX-License-Identifier: Apache-2.0
"""Steps torch.optim.Muon on parameters and gradients made by a formula; prints the parameters."""
import json
import sys

import torch


def values(rows, cols, seed):
    i = torch.arange(rows * cols, dtype=torch.float64)
    return torch.sin(i * 12.9898 + seed * 78.233).reshape(rows, cols).to(torch.float32)


def main():
    steps, nesterov, match = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3] == "1"
    shapes = [(16, 16), (8, 40), (40, 8)]
    params = [torch.nn.Parameter(values(r, c, k)) for k, (r, c) in enumerate(shapes)]
    optimizer = torch.optim.Muon(
        params, lr=0.02, nesterov=nesterov, adjust_lr_fn="match_rms_adamw" if match else None
    )
    for step in range(steps):
        for k, param in enumerate(params):
            param.grad = values(*param.shape, 100 + 10 * step + k)
        optimizer.step()
    print(json.dumps([param.detach().flatten().tolist() for param in params]))


main()
