#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TAM against SGD with momentum, AdaTAMW against AdamW, each at its own best rate.

Every rule is trained at five learning rates, then at the best one with three seeds. TAM also runs
with its damping held constant (d = 1 scales the gradient as SGD does; d = 1/2 is TAM whose cosine
says nothing), so that a gain of the cosine can be told from a gain of another effective rate.

  bench/studies/tam.py --program build/hone-torch --workload story --steps 400
  bench/studies/tam.py --program build/hone-torch --workload mnist --data MNIST_FOLDER --steps 600

Prints a Markdown table (final held-out loss: mean and range over the seeds) and the total time.
"""
import argparse
import time

from train_run import held_out_loss, spread

L2 = {"optim.weight_decay": "0"}
DECOUPLED = {"optim.weight_decay": "0.1"}
RULES = {  # name: (settings, rates around the rule's own default)
    "sgd": ({"optim.name": "sgd", **L2}, "sgd"),
    "tam": ({"optim.name": "tam", **L2}, "tam"),
    "tam, d = 1/2": ({"optim.name": "tam", "optim.fixed_damping": "0.5", **L2}, "tam"),
    "tam, d = 1": ({"optim.name": "tam", "optim.fixed_damping": "1.0", **L2}, "sgd"),
    "adamw": ({"optim.name": "adamw", **DECOUPLED}, "adamw"),
    "adatamw": ({"optim.name": "adatamw", **DECOUPLED}, "adatamw"),
}
# What the defaults of `hone train vision` were when the figures of docs/notes/tam.md were taken.
FIXED = {
    "story": {},
    "mnist": {"trainer.clip_norm": "0", "optim.beta2": "0.999"},
}
WITHOUT_BETA2 = ("sgd", "tam")
RATES = {
    "story": {
        "sgd": [0.03, 0.1, 0.3, 0.6, 1.2],
        "tam": [0.05, 0.15, 0.4, 0.8, 1.6],
        "adamw": [1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2],
        "adatamw": [1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3],
    },
    "mnist": {
        "sgd": [0.003, 0.01, 0.03, 0.1, 0.2],
        "tam": [0.005, 0.015, 0.05, 0.15, 0.3],
        "adamw": [1e-3, 3e-3, 6e-3, 1.2e-2, 2.4e-2],
        "adatamw": [3e-5, 1e-4, 3e-4, 6e-4, 1.2e-3],
    },
}


def run(arguments, settings, rate, seed):
    fixed = dict(FIXED[arguments.workload])
    if settings["optim.name"] in WITHOUT_BETA2:
        fixed.pop("optim.beta2", None)
    chosen = {**fixed, **settings, "lr.peak": repr(rate), "trainer.seed": seed,
              "trainer.steps": arguments.steps, "lr.warm_up_steps": 20}
    verb = "vision" if arguments.workload == "mnist" else "lm"
    return held_out_loss(arguments.program, verb, chosen, arguments.data, arguments.threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--workload", choices=sorted(RATES), required=True)
    parser.add_argument("--data", default="")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    parser.add_argument("--rules", default=";".join(RULES), help="separated by ;")
    arguments = parser.parse_args()
    begin = time.monotonic()
    print("| rule | best of five rates | held-out loss, mean | range over seeds |")
    print("|---|--:|--:|---|", flush=True)
    for name in arguments.rules.split(";"):
        settings, rates = RULES[name]
        tried = RATES[arguments.workload][rates]
        losses = {rate: run(arguments, settings, rate, 1) for rate in tried}
        best = min(losses, key=losses.get)
        seeds = [losses[best]] + [
            run(arguments, settings, best, seed) for seed in range(2, arguments.seeds + 1)
        ]
        edge = " (at the edge)" if best in (min(losses), max(losses)) else ""
        print(f"| {name} | {best:g}{edge} | {spread(seeds)} |", flush=True)
    print(f"\n{(time.monotonic() - begin) / 60:.1f} minutes in all, {arguments.steps} steps a run.")


main()
