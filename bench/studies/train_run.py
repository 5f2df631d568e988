# SPDX-License-Identifier: Apache-2.0
"""Training runs of `hone train`, for the studies beside this file."""
import csv
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time


# The 97.5 % quantile of Student's t with 1, 2, ... degrees of freedom.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
MAX_PAIRS = len(T_975) + 1


class RunFailed(Exception):
    """A run that says nothing about what is studied: a wrong option, missing data, a full disk."""


def train_command(program, verb, out, settings, data="", threads=0):
    command = [program, "train", verb, "--out", str(out), "-q"]
    if data:
        command += ["--data", str(data)]
    if threads:
        command += ["--threads", str(threads)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return command


def held_out_loss(program, verb, settings, data="", threads=0):
    """Held-out loss at the end of `program train verb`; inf where the run failed or diverged."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        command = train_command(program, verb, out, settings, data, threads)
        if subprocess.run(command, capture_output=True, text=True).returncode != 0:
            return math.inf
        with open(out / "metrics.csv", newline="") as file:
            values = [row["val_loss"] for row in csv.DictReader(file) if row["val_loss"]]
    last = float(values[-1]) if values else math.inf
    return last if math.isfinite(last) else math.inf


def call(command):
    """(status, stdout, stderr) of a program; when the study is interrupted, so is the program, once
    and with the time that it needs to save its state."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
        return process.returncode, out, err


def json_of(command):
    """The JSON document that a run prints, and wall_s. A run whose gradient stops being finite is
    {"diverged": what it said}."""
    begin = time.monotonic()
    status, out, err = call(command + ["--json"])
    said = err.strip().splitlines()[-1:] or [f"status {status}, and not a word"]
    if status == 0:
        result = json.loads(out)
    elif "is not finite" in err:
        result = {"diverged": said[0]}
    else:
        raise RunFailed(f"{' '.join(command)}\n{said[0]} (status {status})")
    return {**result, "wall_s": round(time.monotonic() - begin, 3)}


def write_json(path, value):
    """Under its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def kept_run(kept, out, command):
    """json_of(command), which trains into `out`, read from the file `kept` where it ran before and
    resumed where it was killed."""
    if kept.exists():
        record = json.loads(kept.read_text(encoding="utf-8"))
        if record["command"] != command[1:]:
            raise RunFailed(f"{kept} is of another command; choose another --out")
        return record["result"]
    begun = any((out / part).exists() for part in ("train.toml", "metrics.csv", "checkpoints"))
    result = json_of(command + ["--resume"] * begun)
    write_json(kept, {"command": command[1:], "result": result})
    return result


def spread(values, digits=4):
    """mean | range, as two cells of a table."""
    low, high = min(values), max(values)
    return f"{sum(values) / len(values):.{digits}f} | {low:.{digits}f} to {high:.{digits}f}"


def paired_difference(values, reference):
    """(mean, half of the 95 % interval) of the differences of runs with the same seeds."""
    differences = [a - b for a, b in zip(values, reference, strict=True)]
    deviation = statistics.stdev(differences)
    half = T_975[len(differences) - 2] * deviation / math.sqrt(len(differences))
    return statistics.mean(differences), half
