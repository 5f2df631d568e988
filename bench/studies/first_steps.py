#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first losses of every rule and preset of `hone train` with its default rates.

  bench/studies/first_steps.py --program build/hone-torch --workload stories
  bench/studies/first_steps.py --program build/hone-torch --workload images --data FOLDER --steps 60

Prints a Markdown table: the training losses of the first ten steps, the largest of all steps as a
multiple of the first, whether the run warned of its first steps, and what was held out at the end.
Exits with status 1 if a loss rises above 1.5 times the first one without a warning.
"""
import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile

from train_run import RunFailed, train_command

RULES = ("sgd", "adam", "adamw", "adagrad", "lion", "tam", "adatam", "adatamw")
PRESETS = ("high_performance", "stable", "large_model", "memory_limited", "for_model_size")
ALLOWED_RISE = 1.5
SHOWN = 10


def settings_of(name):
    """The keys of a row of the table: a rule, or RULE/PRESET."""
    rule, _, preset = name.partition("/")
    return {"optim.name": rule, **({"optim.preset": preset} if preset else {})}


def last_of(rows, column):
    values = [row[column] for row in rows if row.get(column)]
    return float(values[-1]) if values else None


def run(arguments, name):
    verb = "lm" if arguments.workload == "stories" else "vision"
    settings = {**settings_of(name), "trainer.steps": arguments.steps,
                "trainer.seed": arguments.seed,
                **dict(one.split("=", 1) for one in arguments.set)}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        command = train_command(arguments.program, verb, out, settings, arguments.data,
                                arguments.threads)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RunFailed(f"{' '.join(command)}\n{done.stderr}")
        with open(out / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    return {"losses": losses, "rise": max(losses) / losses[0],
            "warned": "the loss may rise first" in done.stderr,
            "val_loss": last_of(rows, "val_loss"), "accuracy": last_of(rows, "val_accuracy")}


def line_of(name, result):
    shown = " ".join(f"{loss:.2f}" for loss in result["losses"][:SHOWN])
    accuracy = "" if result["accuracy"] is None else f", {100 * result['accuracy']:.1f} %"
    warned = "yes" if result["warned"] else ""
    return (f"| {name} | {shown} | {result['rise']:.2f} | {warned} "
            f"| {result['val_loss']:.3f}{accuracy} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--workload", choices=("stories", "images"), required=True)
    parser.add_argument("--data", default="", help="a folder that `hone train vision` takes")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of all runs")
    every = RULES + tuple(f"tam/{preset}" for preset in PRESETS)
    parser.add_argument("--rules", default=",".join(every), help="RULE or RULE/PRESET, by commas")
    arguments = parser.parse_args()
    print(f"| rule | first {SHOWN} losses | largest / first | warned | held out |")
    print("|---|---|--:|---|--:|", flush=True)
    risen = []
    for name in arguments.rules.split(","):
        result = run(arguments, name)
        print(line_of(name, result), flush=True)
        if result["rise"] > ALLOWED_RISE and not result["warned"]:
            risen.append(name)
    if risen:
        names = ", ".join(risen)
        sys.exit(f"above {ALLOWED_RISE} times the first loss, without a warning: {names}")


main()
