# SPDX-License-Identifier: Apache-2.0
"""One training run of `hone train`, for the studies beside this file."""
import csv
import math
import pathlib
import subprocess
import tempfile


def held_out_loss(program, verb, settings, data="", threads=0):
    """Held-out loss at the end of `program train verb`; inf where the run failed or diverged."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        command = [program, "train", verb, "--out", str(out), "-q"]
        if data:
            command += ["--data", data]
        if threads:
            command += ["--threads", str(threads)]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        if subprocess.run(command, capture_output=True, text=True).returncode != 0:
            return math.inf
        with open(out / "metrics.csv", newline="") as file:
            values = [row["val_loss"] for row in csv.DictReader(file) if row["val_loss"]]
    last = float(values[-1]) if values else math.inf
    return last if math.isfinite(last) else math.inf


def spread(values):
    """mean | range, as two cells of a table."""
    return f"{sum(values) / len(values):.4f} | {min(values):.4f} to {max(values):.4f}"
