# SPDX-License-Identifier: Apache-2.0
"""torch.optim.lr_scheduler as oracle.

OUT    writes {case: {"rates": [[group 0, group 1], ...], "momentum": [...]}} over STEPS steps,
       momentum for one_cycle only. The cases are those of cases_support.cc, by name.
"""
import json
import sys
import warnings

import torch
from torch.optim import lr_scheduler as lr

STEPS, RATES = 1000, (0.4, 0.03)
MAX_RATES = [1.0, 0.2]
warnings.simplefilter("ignore")  # no optimizer steps here


def inverse(t):
    return 1 / (1 + 0.01 * t)


def wave(t):
    return 1.01 if t % 3 == 0 else 0.99


def warmup_cosine(o):
    parts = [lr.LinearLR(o, 0.25, 1.0, 100), lr.CosineAnnealingLR(o, 900, 1e-3)]
    return lr.SequentialLR(o, parts, [100])


def three_parts(o):
    parts = [lr.ConstantLR(o, 0.1, 40), lr.ExponentialLR(o, 0.995), lr.PolynomialLR(o, 300, 2.0)]
    return lr.SequentialLR(o, parts, [50, 640])


def chain(o):
    return lr.ChainedScheduler([lr.LinearLR(o, 0.05, 1.0, 200), lr.ExponentialLR(o, 0.999),
                                lr.MultiStepLR(o, [250, 500], 0.5)])


def cosine_chain(o):
    return lr.ChainedScheduler([lr.CosineAnnealingLR(o, 1000), lr.ConstantLR(o, 0.5, 10),
                                lr.MultiplicativeLR(o, wave)])


CASES = {
    "cosine_1000": lambda o: lr.CosineAnnealingLR(o, 1000),
    "cosine_100_floor": lambda o: lr.CosineAnnealingLR(o, 100, 1e-3),
    "cosine_7": lambda o: lr.CosineAnnealingLR(o, 7),
    "restarts_50": lambda o: lr.CosineAnnealingWarmRestarts(o, 50),
    "restarts_10_2_floor": lambda o: lr.CosineAnnealingWarmRestarts(o, 10, 2, 1e-3),
    "restarts_7_3": lambda o: lr.CosineAnnealingWarmRestarts(o, 7, 3),
    "linear_warmup_500": lambda o: lr.LinearLR(o, 0.1, 1.0, 500),
    "linear_warmup_5": lambda o: lr.LinearLR(o),
    "constant_warmup_30": lambda o: lr.ConstantLR(o, 0.25, 30),
    "polynomial_900_2": lambda o: lr.PolynomialLR(o, 900, 2.0),
    "polynomial_1000": lambda o: lr.PolynomialLR(o, 1000),
    "polynomial_200_half": lambda o: lr.PolynomialLR(o, 200, 0.5),
    "exponential_99": lambda o: lr.ExponentialLR(o, 0.99),
    "exponential_1": lambda o: lr.ExponentialLR(o, 1.0),
    "multi_step": lambda o: lr.MultiStepLR(o, [1, 200, 201, 900], 0.3),
    "lambda_one": lambda o: lr.LambdaLR(o, inverse),
    "lambda_two": lambda o: lr.LambdaLR(o, [inverse, wave]),
    "multiplicative_one": lambda o: lr.MultiplicativeLR(o, wave),
    "multiplicative_two": lambda o: lr.MultiplicativeLR(o, [inverse, wave]),
    "sequential_warmup_cosine": warmup_cosine,
    "sequential_three": three_parts,
    "chained_three": chain,
    "chained_cosine": cosine_chain,
}

ONE_CYCLE = {
    "one_cycle_100": dict(max_lr=1.0, total_steps=100),
    "one_cycle_1000": dict(max_lr=MAX_RATES, total_steps=1000, pct_start=0.25),
    "one_cycle_linear": dict(max_lr=MAX_RATES, total_steps=999, anneal_strategy="linear",
                             div_factor=10.0, final_div_factor=100.0),
    "one_cycle_three_phase": dict(max_lr=MAX_RATES, total_steps=1000, pct_start=0.4,
                                  three_phase=True, base_momentum=0.8, max_momentum=0.9),
    "one_cycle_three_phase_linear": dict(max_lr=0.5, total_steps=777, three_phase=True,
                                         anneal_strategy="linear"),
    "one_cycle_short_rise": dict(max_lr=0.5, total_steps=9, pct_start=0.1),
    "one_cycle_plain": dict(max_lr=0.5, total_steps=300, cycle_momentum=False),
}


def make_optimizer(kind):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in RATES]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=1.0, momentum=0.9)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
            "rmsprop": torch.optim.RMSprop}[kind](groups, lr=1.0)


def momentum_of(group):
    return group["betas"][0] if "betas" in group else group["momentum"]


def trace(optimizer, scheduler, steps, momentum):
    out = {"rates": [], "momentum": []}
    for step in range(steps):
        if step > 0:
            scheduler.step()
        out["rates"].append([group["lr"] for group in optimizer.param_groups])
        if momentum:
            out["momentum"].append(momentum_of(optimizer.param_groups[1]))
    return out


# Some metrics rise, some fall, some are NaN or equal.
def metric(t):
    if t % 17 == 5:
        return float("nan")
    return 1 / (1 + 0.05 * t) if t < 60 else 0.25 + 0.01 * (t % 5)


PLATEAU = {
    "plateau_default": dict(),
    "plateau_min_abs": dict(factor=0.5, patience=2, threshold=0.005, threshold_mode="abs",
                            cooldown=3, min_lr=[1e-3, 2e-3]),
    "plateau_max_rel": dict(mode="max", factor=0.7, patience=4, threshold=0.01, min_lr=1e-4),
    "plateau_max_abs": dict(mode="max", factor=0.9, patience=0, threshold=0.1,
                            threshold_mode="abs", cooldown=1, eps=1e-4),
}


def plateau_trace(options):
    optimizer = make_optimizer("sgd")
    scheduler = lr.ReduceLROnPlateau(optimizer, **options)
    rates = []
    for t in range(STEPS):
        scheduler.step(metric(t))
        rates.append([group["lr"] for group in optimizer.param_groups])
    return {"rates": rates, "momentum": []}


def main():
    out = {}
    for name, make in CASES.items():
        optimizer = make_optimizer("sgd")
        out[name] = trace(optimizer, make(optimizer), STEPS, False)
    for name, options in ONE_CYCLE.items():
        for kind in ("sgd", "adam", "adamw", "rmsprop"):
            optimizer = make_optimizer(kind)
            steps = min(STEPS, options["total_steps"] + 1)  # the last one it allows
            scheduler = lr.OneCycleLR(optimizer, **options)
            out[f"{name}/{kind}"] = trace(optimizer, scheduler, steps, True)
    for name, options in PLATEAU.items():
        out[name] = plateau_trace(options)
    with open(sys.argv[1], "w") as file:
        json.dump(out, file)


main()
