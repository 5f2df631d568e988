# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler on scripted overflows: the oracle of scaler_trace_test.cc.

scaler_trace.py trace SCRIPT.json    a JSON list, one trace per entry of the script
scaler_trace.py resume STATE.json    loads a state_dict, takes growth_interval clean steps, prints
                                     the new one
"""

import json
import sys

import torch


class Counted(torch.optim.SGD):
    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


def make():
    return Counted([torch.zeros(3, requires_grad=True)], lr=0.0)


def iterate(scaler, optimizers, overflows, explicit):
    scaler.scale(torch.ones(()))
    for optimizer, overflow in zip(optimizers, overflows):
        value = float("inf") if overflow else 1.0
        optimizer.param_groups[0]["params"][0].grad = torch.full((3,), value)
    if explicit:
        scaler.unscale_(optimizers[0])
    before = [optimizer.steps for optimizer in optimizers]
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    return [optimizer.steps > count for optimizer, count in zip(optimizers, before)]


def trace(case):
    scaler = torch.amp.GradScaler("cpu", growth_factor=case["growth"],
                                  backoff_factor=case["backoff"], growth_interval=case["interval"])
    optimizers, out = (make(), make()), {"scale": [], "tracker": [], "stepped": []}
    for code in case["codes"]:
        stepped = iterate(scaler, optimizers, (code & 1, code & 2), code & 4)
        out["scale"].append(scaler.get_scale())
        out["tracker"].append(scaler._get_growth_tracker())
        out["stepped"].append(stepped[0] + 2 * stepped[1])
    out["state"] = scaler.state_dict()
    return out


def resume(state):
    scaler, optimizers = torch.amp.GradScaler("cpu"), (make(),)
    scaler.load_state_dict(state)
    for _ in range(state["growth_interval"]):
        iterate(scaler, optimizers, (False,), False)
    return scaler.state_dict()


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        given = json.load(file)
    result = [trace(case) for case in given] if sys.argv[1] == "trace" else resume(given)
    json.dump(result, sys.stdout)


main()
