# SPDX-License-Identifier: Apache-2.0
"""torch.optim as oracle.

peer_optimizers.py CASES NUMBERS OUT
    CASES    {"shapes": [...], "steps": n, "cases": [{"rule", "groups": [{option: value} twice],
             "in_first": parameters of the first group, "fused": bool}]}
    NUMBERS  fp32: the parameters, then their gradients step by step
    OUT      fp32: the parameters behind the last step, case by case
"""
import json
import sys

import numpy
import torch

RULES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
         "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop}


def cut(numbers, shapes, at):
    out = []
    for shape in shapes:
        count = int(numpy.prod(shape))
        out.append(torch.from_numpy(numbers[at:at + count].copy()).reshape(shape))
        at += count
    return out, at


def run(case, shapes, steps, numbers):
    values, at = cut(numbers, shapes, 0)
    params = [torch.nn.Parameter(value) for value in values]
    first = case["in_first"]
    groups = [dict(case["groups"][0], params=params[:first]),
              dict(case["groups"][1], params=params[first:])]
    # Adagrad's sum begins at what its constructor is told, for all groups.
    start = {key: case["groups"][0][key] for key in ("initial_accumulator_value",)
             if key in case["groups"][0]}
    if case["fused"] and case["rule"] != "rmsprop":  # which has no fused step
        start["fused"] = True
    optimizer = RULES[case["rule"]](groups, lr=1.0, **start)
    for _ in range(steps):
        grads, at = cut(numbers, shapes, at)
        for param, grad in zip(params, grads):
            param.grad = grad
        optimizer.step()
    return numpy.concatenate([param.detach().numpy().reshape(-1) for param in params])


def main():
    with open(sys.argv[1]) as file:
        given = json.load(file)
    numbers = numpy.fromfile(sys.argv[2], dtype=numpy.float32)
    out = [run(case, given["shapes"], given["steps"], numbers) for case in given["cases"]]
    numpy.concatenate(out).tofile(sys.argv[3])


main()
