#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does part contrast help, and does it collapse: cross entropy alone, beside SupCon, beside a
triplet loss, and with the parts of PaCo-2, on one data set.

  tools/pth_to_safetensors.py resnet20-12fca82f.th resnet20.safetensors
  bench/studies/paco.py --program build/hone-torch --init resnet20.safetensors --out flowers \\
      --data 17flowers --minutes 120 [--ablations]
  bench/studies/paco.py ... --data leaves

All runs have the same ResNet-20 at 64 pixels, initial weights, number of steps, two views of 32
images a step, augmentation, optimizer and label smoothing. Each method chooses among three settings
by one run of seed 1 (accuracy; of equal ones, the loss); five other seeds, the same for all
methods, then report. The images that report are not those that choose:
  a folder  settings are chosen on val/ if there is a test/ too, otherwise on a fifth of each class
            of train/, which they then do not train on. The other seeds train on all of train/
            and report on test/ (or val/). Links to the images are made in OUT/data.
  leaves    settings are chosen on the leaves of data.leaves.seed 1, for training and held out; the
            other seeds train and report on those of data.leaves.seed 2.

--minutes is for all runs of the command: a few steps of part contrast, the slowest method, give the
number of steps of a run. It is kept in OUT/study.json, as every result is in OUT/results: a study
that was killed goes on where it stopped, within a run from its newest checkpoint. --ablations adds
part contrast without its parts and with the losses of its presets, also to a finished study.

Prints Markdown tables and writes OUT/report.json. A run that diverges has accuracy 0. Intervals
are those of Student's t for the mean of paired differences.
"""
import argparse
import collections
import hashlib
import json
import math
import pathlib
import signal
import sys

from split_images import link_splits
from train_run import (MAX_PAIRS, RunFailed, json_of, kept_run, paired_difference, spread,
                       train_command, write_json)

GRID_SEED, FIRST_SEED = 1, 2
COMMON = {
    "model.name": "resnet20", "model.channels_last": "true", "loss.label_smoothing": 0.1,
    "loss.on_collapse": "warn", "augment.flip": 0.5, "augment.ops": 2, "augment.magnitude": 5,
    "augment.occlude": 0.3, "augment.shuffle": 0.3, "optim.name": "adamw",
    "optim.weight_decay": 1e-4, "lr.schedule": "cosine", "trainer.micro_batch": 32,
    "trainer.clip_norm": 1, "trainer.validate_every": 0, "trainer.checkpoint_every": 50,
    "trainer.keep_checkpoints": 1,
}
LEAVES = {"data.leaves.val": 40}  # of each class; the default of 10 would be coarse
LEAVES_SEEDS = {"grid": 1, "final": 2}
# name: (verb, what makes the method, the key of its own weight)
METHODS = {
    "ce": ("vision", {"loss.method": "ce", "loss.views": 2}, None),
    "supcon": ("vision", {"loss.method": "supcon", "loss.views": 2}, "loss.aux_weight"),
    "triplet": ("vision", {"loss.method": "triplet", "loss.views": 2}, "loss.aux_weight"),
    "paco": ("paco", {"paco.preset": "exact"}, "paco.lambda_pac"),
}
ABLATIONS = {
    "no part contrast": {"paco.lambda_pac": 0},
    "no alignment": {"paco.eta_soc": 0},
    "neither, weighted cross entropy": {"paco.lambda_pac": 0, "paco.eta_soc": 0,
                                        "paco.ce_weight": "detached"},
    "preset compat": {"paco.preset": "compat"},
    "preset robust": {"paco.preset": "robust"},
    "matching by cosine": {"paco.match_metric": "cosine"},
}
CALIBRATION_STEPS = (10, 40)


def grid_of(method):
    """Three settings: three rates, or two rates and two values of the method's weight."""
    weight = METHODS[method][2]
    if weight is None:
        return [{"lr.peak": 0.001}, {"lr.peak": 0.003}, {"lr.peak": 0.01}]
    return [{"lr.peak": 0.001, weight: 0.3}, {"lr.peak": 0.003, weight: 0.3},
            {"lr.peak": 0.003, weight: 1}]


def steps_within(minutes, runs, times):
    """Steps of each of `runs` runs, from the seconds of runs of CALIBRATION_STEPS steps, whose
    difference is free of reading images and of validation."""
    short, long = CALIBRATION_STEPS
    step = max((times[1] - times[0]) / (long - short), 1e-4)
    rest = max(times[0] - short * step, 0)
    steps = int((60 * minutes / runs - rest) / step)
    if steps < 1:
        raise RunFailed(f"{runs} runs take more than {minutes} minutes: {rest:.1f} s each, and "
                        f"{step:.2f} s for a step")
    return steps


def accuracy_of(result):
    return result.get("val_accuracy") or 0.0


def guard_of(result):
    return "diverged" if "diverged" in result else str(result.get("guard"))


def loss_of(result):
    loss = result.get("val_loss")
    return math.inf if loss is None else loss


class Study:
    def __init__(self, arguments):
        self.arguments, self.out = arguments, arguments.out.resolve()
        self.init, data = arguments.init.resolve(), arguments.data
        self.is_leaves = data == "leaves"
        self.seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
        plan = {"data": data if self.is_leaves else str(pathlib.Path(data).resolve()),
                "init": hashlib.sha256(self.init.read_bytes()).hexdigest(),
                "seeds": arguments.seeds, "threads": arguments.threads}
        if not self.is_leaves:
            plan["images"] = {name: list(counts) for name, counts in
                              link_splits(pathlib.Path(plan["data"]), self.out / "data").items()}
        self.state = self.begin(plan)

    def begin(self, plan):
        """The recorded state, or a new one with a number of steps."""
        file, given = self.out / "study.json", self.arguments.steps
        if file.exists():
            state = json.loads(file.read_text(encoding="utf-8"))
            for key, value in {**plan, "steps": given or state["steps"]}.items():
                if state.get(key) != value:
                    raise RunFailed(f"{self.out} holds a study with {key} = {state.get(key)}, not "
                                    f"{value}; choose another --out")
            return state
        state = {**plan, "steps": given}
        if given is None:
            per_seed = len(METHODS) + len(ABLATIONS) * self.arguments.ablations
            runs = sum(len(grid_of(method)) for method in METHODS) + per_seed * len(self.seeds)
            state["calibration_s"] = [self.time_steps(steps) for steps in CALIBRATION_STEPS]
            state["steps"] = steps_within(self.arguments.minutes, runs, state["calibration_s"])
        write_json(file, state)
        return state

    def command(self, method, part, out, seed, steps, settings):
        """Trains a method on the part "grid" or "final" of the data."""
        verb, own, _ = METHODS[method]
        data = {**LEAVES, "data.leaves.seed": LEAVES_SEEDS[part]} if self.is_leaves else {
            "data.image_size": 64}
        chosen = {**COMMON, **data, **own, "trainer.steps": steps, "trainer.seed": seed,
                  "lr.warm_up_steps": min(50, steps // 10), **settings}
        source = "leaves" if self.is_leaves else self.out / "data" / part
        return train_command(self.arguments.program, verb, out, chosen, source,
                             self.arguments.threads) + ["--init", str(self.init)]

    def time_steps(self, steps):
        out = self.out / "runs" / "calibration"
        command = self.command("paco", "grid", out, GRID_SEED, steps, grid_of("paco")[0])
        return json_of(command + ["--fresh"])["wall_s"]

    def run(self, name, method, part, seed, settings):
        name = f"{part}-{name}-{seed}".replace(" ", "_").replace(",", "")
        out = self.out / "runs" / name
        command = self.command(method, part, out, seed, self.state["steps"], settings)
        result = kept_run(self.out / "results" / f"{name}.json", out, command)
        percent = 100 * accuracy_of(result)
        print(f"{name}: {percent:.2f} %, guard {guard_of(result)}", file=sys.stderr)
        return result

    def choose(self):
        """{method: [(setting, result)]} of the grid, and {method: its best setting}."""
        grid = {}
        for method in METHODS:
            grid[method] = [(setting, self.run(f"{method}-{i}", method, "grid", GRID_SEED, setting))
                            for i, setting in enumerate(grid_of(method))]
        rank = lambda run: (accuracy_of(run[1]), -loss_of(run[1]))
        return grid, {method: max(tried, key=rank)[0] for method, tried in grid.items()}

    def report_runs(self, chosen):
        """{row: its results by seed}, for the methods and the ablations."""
        rows = {method: (method, chosen[method]) for method in METHODS}
        if self.arguments.ablations:
            rows |= {name: ("paco", {**chosen["paco"], **change})
                     for name, change in ABLATIONS.items()}
        results = {name: [] for name in rows}
        for seed in self.seeds:
            for name, (method, setting) in rows.items():
                results[name].append(self.run(name, method, "final", seed, setting))
        return results


def print_grid(grid, chosen):
    print("| method | setting | accuracy, % | loss | guard | |\n|---|---|--:|--:|---|---|")
    for method, tried in grid.items():
        for setting, result in tried:
            text = " ".join(f"{key}={value}" for key, value in setting.items())
            mark = "chosen" if setting == chosen[method] else ""
            print(f"| {method} | {text} | {100 * accuracy_of(result):.2f} | "
                  f"{loss_of(result):.4f} | {guard_of(result)} | {mark} |")


def print_results(results, names, reference):
    """Prints a table of these rows and returns {row: (mean difference, half interval)}."""
    percent = {name: [100 * accuracy_of(result) for result in results[name]] for name in names}
    print(f"\n| | accuracy, mean, % | range | guard | minus {reference}, 95 % interval |\n"
          "|---|--:|---|---|---|")
    apart = {}
    for name in names:
        cell = ""
        if name != reference:
            mean, half = apart[name] = paired_difference(percent[name], percent[reference])
            cell = f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f})"
        counts = collections.Counter(map(guard_of, results[name])).most_common()
        states = ", ".join(f"{count} {state}" for state, count in counts)
        print(f"| {name} | {spread(percent[name], 2)} | {states} | {cell} |")
    return apart


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True, help="a folder of images, or leaves")
    parser.add_argument("--init", type=pathlib.Path, required=True, help="a safetensors file")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float, help="for all runs; fixes the number of steps")
    length.add_argument("--steps", type=int, help="of each run, instead")
    parser.add_argument("--seeds", type=int, default=5, choices=range(2, MAX_PAIRS + 1))
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    study = Study(parse_arguments())
    grid, chosen = study.choose()
    results = study.report_runs(chosen)
    print_grid(grid, chosen)
    apart = {"ce": print_results(results, list(METHODS), "ce")}
    if study.arguments.ablations:
        apart["paco"] = print_results(results, ["paco", *ABLATIONS], "paco")
    runs = [result for tried in grid.values() for _, result in tried] + sum(results.values(), [])
    minutes = sum(result["wall_s"] for result in runs) / 60
    print(f"\n{minutes:.1f} minutes of finished runs, {study.state['steps']} steps a run, "
          f"{max(result.get('classes', 0) for result in runs)} classes, "
          f"seeds {study.seeds[0]} to {study.seeds[-1]}.")
    write_json(study.out / "report.json", {
        **study.state, "minutes": minutes, "grid": grid, "chosen": chosen, "results": results,
        "percent_minus": apart})


if __name__ == "__main__":
    try:
        main()
    except (RunFailed, ValueError, OSError) as error:
        sys.exit(f"paco.py: {error}")
