# SPDX-License-Identifier: Apache-2.0
"""Takes over an optimizer that hone saved, steps it in torch.optim, saves it for hone.

  peer_state_dict.py RULE FOLDER OUT FIRST_STEP STEPS

FOLDER holds params.safetensors and what hone's save_state_dict writes; OUT gets the same. Without
the latter the optimizer is Python's own, with the options of OWN.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

RULES = {
    "sgd": lambda params: torch.optim.SGD(params, lr=9, momentum=0.5),
    "adam": lambda params: torch.optim.Adam(params, lr=9),
    "adamw": lambda params: torch.optim.AdamW(params, lr=9, amsgrad=True),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=9),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=9, momentum=0.5, centered=True),
    "muon": lambda params: torch.optim.Muon(params, lr=9),
}
OWN = {
    "adam": lambda groups: torch.optim.Adam(groups, lr=torch.tensor(0.02), weight_decay=0.1),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=torch.tensor([0.02]), weight_decay=0.1),
    "muon": lambda groups: torch.optim.Muon(
        [dict(groups[0], adjust_lr_fn="match_rms_adamw"), groups[1]], lr=torch.tensor(0.02),
        weight_decay=0.25, momentum=0.75, nesterov=False, ns_coefficients=(3.5, -4.75, 2.0),
        eps=1e-6, ns_steps=4),
}


def values(rows, cols, seed):
    i = torch.arange(rows * cols, dtype=torch.float64)
    return torch.sin(i * 12.9898 + seed * 78.233).reshape(rows, cols).to(torch.float32)


# ---- as docs/optimizers.md has it
def load_hone(optimizer, folder):
    state = {}
    for name, tensor in load_file(folder / "optimizer.safetensors").items():
        _, parameter, field = name.split(".", 2)
        state.setdefault(int(parameter), {})[field] = tensor
    groups = json.loads((folder / "optimizer.json").read_text())["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def save_hone(optimizer, folder):
    saved = optimizer.state_dict()
    save_file(
        {
            f"state.{parameter}.{field}": value
            for parameter, fields in saved["state"].items()
            for field, value in fields.items()
            if value is not None
        },
        folder / "optimizer.safetensors",
    )
    groups = json.dumps({"param_groups": saved["param_groups"]}, default=lambda value: value.item())
    (folder / "optimizer.json").write_text(groups)
# ----


def main():
    rule, folder, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    first, steps = int(sys.argv[4]), int(sys.argv[5])
    stored = load_file(folder / "params.safetensors")
    params = [torch.nn.Parameter(stored[str(k)]) for k in range(len(stored))]
    saved = (folder / "optimizer.json").exists()
    optimizer = (RULES if saved else OWN)[rule]([{"params": params[:2]}, {"params": params[2:]}])
    if saved:
        load_hone(optimizer, folder)
    for step in range(first, first + steps):
        for k, param in enumerate(params):
            param.grad = values(*param.shape, 100 + 10 * step + k)
        optimizer.step()
    save_hone(optimizer, out)
    weights = {str(k): param.detach() for k, param in enumerate(params)}
    save_file(weights, out / "params.safetensors")


main()
