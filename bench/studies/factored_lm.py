#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a language model lose when the products of its MLPs have half of their bytes?

  bench/studies/factored_lm.py --program build/hone-torch --out factored [--data text.txt]

For each seed: trains the dense model (the defaults of `hone train lm`), replaces gate_up_proj and
down_proj of every layer by factored products with a share of the bytes in the file (--bytes, 0.5),
and trains that model again for a share of the steps (--tune-steps, 0.1). The rows:
  activation  low-rank factors of least error of the layer's outputs (`hone tune`)
  svd         low-rank factors of least error of the weight
  random      sketched factors as random copies of the weight, as the reference library starts them
  dense       the unchanged model, trained as long again
Each row chooses its learning rate by the loss of the first seed, which is then left out; the others
report. Rates are tried from 0.001 on by factors of two, until both neighbors of the best are worse.
Losses are those of the held-out text, which decides nothing else. Results are kept in OUT/results,
so that a study that was killed goes on where it stopped. Prints a Markdown table and writes
OUT/report.json.
"""
import argparse
import json
import pathlib
import signal
import sys

from train_run import (MAX_PAIRS, RunFailed, kept_run, spread, train_command, write_json)

ROWS = {"activation": ("lowrank", "activation"), "svd": ("lowrank", "svd"),
        "random": ("sketched", "random"), "dense": None}
FIRST_PEAK = 0.001
SPACE = """kind = "layers"
quality = {{ metric = "loss" }}
search = {{ name = "grid" }}

[[layers]]
select = "mlp"
separate = false
params = {{ bytes = [{share}], mode = ["{mode}"], fit = ["{fit}"] }}
"""


class Study:
    def __init__(self, arguments):
        self.arguments, self.out = arguments, arguments.out.resolve()
        self.data = str(arguments.data.resolve()) if arguments.data else ""

    def run(self, name, out, command):
        result = kept_run(self.out / "results" / f"{name}.json", out, command)
        if "diverged" in result:
            raise RunFailed(f"{name}: {result['diverged']}")
        return result

    def train(self, name, seed, steps, settings, init=None):
        out = self.out / "runs" / name
        command = train_command(
            self.arguments.program, "lm", out,
            {"trainer.seed": seed, "trainer.steps": steps, "trainer.validate_every": 0,
             "trainer.keep_checkpoints": 1, "lr.warm_up_steps": min(50, steps // 10), **settings},
            self.data, self.arguments.threads)
        result = self.run(name, out, command + (["--init", str(init)] if init else []))
        print(f"{name}: held-out loss {result['val_loss']:.4f}", file=sys.stderr)
        return result

    def replace(self, name, seed, model, method):
        """The folder of the model with factored products, and the report of `hone tune`."""
        mode, fit = method
        space, out = self.out / "spaces" / f"{fit}.toml", self.out / "runs" / name
        space.parent.mkdir(parents=True, exist_ok=True)
        space.write_text(SPACE.format(share=self.arguments.bytes, mode=mode, fit=fit),
                         encoding="utf-8")
        command = [self.arguments.program, "tune", str(model), "--space", str(space), "--out",
                   str(out), "--seed", str(seed), "-q", "--data", self.data or "stories"]
        if self.arguments.threads:
            command += ["--threads", str(self.arguments.threads)]
        return out / "model", self.run(name, out, command)

    def row(self, row, seed, peak=None):
        """The learning rate, the held-out loss after training again, and that before as `hone tune`
        measures it. Without a given rate, the best one of this seed."""
        steps = round(self.arguments.steps * self.arguments.tune_steps)
        model = self.out / "runs" / f"dense-{seed}" / "model"
        before = None
        if ROWS[row]:
            model, report = self.replace(f"{row}-{seed}", seed, model, ROWS[row])
            before = report["after"]["loss"]
        losses = {}

        def loss_of(rate):
            if rate not in losses:
                losses[rate] = self.train(f"{row}-{seed}-{rate}", seed, steps, {"lr.peak": rate},
                                          model)["val_loss"]
            return losses[rate]

        if peak is None:
            best = FIRST_PEAK
            while peak != best:
                peak = best
                best = min((peak, peak / 2, peak * 2), key=loss_of)
        return peak, loss_of(peak), before

    def results(self):
        chosen, rows, dense = {}, {row: [] for row in ROWS}, []
        for seed in range(1, self.arguments.seeds + 2):
            loss = self.train(f"dense-{seed}", seed, self.arguments.steps, {})["val_loss"]
            if seed > 1:
                dense.append(loss)
            for row in ROWS:
                chosen[row], own, before = self.row(row, seed, chosen.get(row))
                if seed > 1:
                    rows[row].append({"loss": own, "before": before, "ratio": own / loss})
        return chosen, dense, rows


def print_table(chosen, dense, rows):
    print("| MLP products | learning rate | loss after the fit | loss after training again | range "
          "| over dense | range |\n|---|--:|--:|--:|---|--:|---|")
    print(f"| dense | | | {spread(dense)} | 1 | |")
    for row, results in rows.items():
        before = [result["before"] for result in results if result["before"] is not None]
        start = f"{sum(before) / len(before):.4f}" if before else ""
        name = "dense, trained as long again" if row == "dense" else row
        print(f"| {name} | {chosen[row]} | {start} | "
              f"{spread([result['loss'] for result in results])} | "
              f"{spread([result['ratio'] for result in results])} |")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, help="a text; without it, embedded stories")
    parser.add_argument("--steps", type=int, default=1750, help="of the dense model")
    parser.add_argument("--tune-steps", type=float, default=0.1, help="share of them")
    parser.add_argument("--bytes", type=float, default=0.5, help="share of those of the MLPs")
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, MAX_PAIRS + 1))
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    study = Study(parse_arguments())
    chosen, dense, rows = study.results()
    print_table(chosen, dense, rows)
    write_json(study.out / "report.json", {"chosen": chosen, "dense": dense, "rows": rows})


if __name__ == "__main__":
    try:
        main()
    except (RunFailed, ValueError, OSError, json.JSONDecodeError) as error:
        sys.exit(f"factored_lm.py: {error}")
