#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AdamW with its state in fp32, bf16 and 8 bits on the embedded stories, seed by seed.

  bench/studies/state_dtype.py --program build/hone-torch --steps 600

Prints a Markdown table of held-out losses and the largest difference to fp32 of the same seed.
"""
import argparse
import time

from train_run import held_out_loss, spread


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    arguments = parser.parse_args()
    begin = time.monotonic()
    print("| state | held-out loss, mean | range over seeds | largest difference to fp32 |")
    print("|---|--:|---|--:|", flush=True)
    fp32 = []
    for dtype in ("fp32", "bf16", "8bit"):
        losses = [
            held_out_loss(arguments.program, "lm", {"optim.state_dtype": dtype,
                                                    "trainer.steps": arguments.steps,
                                                    "trainer.seed": seed},
                          threads=arguments.threads)
            for seed in range(1, arguments.seeds + 1)
        ]
        fp32 = fp32 or losses
        apart = max((a - b for a, b in zip(losses, fp32)), key=abs)
        print(f"| {dtype} | {spread(losses)} | {apart:+.4f} |", flush=True)
    print(f"\n{(time.monotonic() - begin) / 60:.1f} minutes in all, {arguments.steps} steps a run.")


main()
