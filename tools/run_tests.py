#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a build folder and prints a summary.

tools/run_tests.py FOLDER [fast|slow] [--label PART] [-j N]

Prints the parts (CTest labels) that run, the time each took, every distinct reason for a skip and,
as the last line, "N passed, N failed, N skipped". Every case of a GoogleTest binary counts as a
test, anything else as one. Exits with status 1 if a test failed or none ran.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

Counts = collections.namedtuple("Counts", "passed failed skipped")


def list_tests(folder, ctest):
    """Maps the names of all registered tests to (part, is_slow)."""
    text = subprocess.run([ctest, "--test-dir", folder, "--show-only=json-v1"], check=True,
                          capture_output=True, text=True).stdout
    tests = {}
    for test in json.loads(text)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        labels = properties.get("LABELS", [])
        parts = [label for label in labels if label != "slow"] or ["unit"]
        tests[test["name"]] = (parts[0], "slow" in labels)
    return tests


def count_cases(path, reasons):
    """The counts of one GoogleTest report."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            failed += 1
        elif (skip := case.find("skipped")) is not None:
            skipped += 1
            text = (skip.get("message") or skip.text or "").strip().splitlines()
            reasons[text[-1] if text else "no reason given"] += 1
        elif case.get("status") == "run":
            passed += 1
    return Counts(passed, failed, skipped)


def count_test(case, reports, reasons):
    """The counts of one CTest test: its cases if it wrote a report, otherwise one."""
    status = case.get("status")
    skip = case.find("skipped")
    if status == "notrun" and not (skip.get("message") or "").startswith("SKIP_"):
        status = "fail"  # CTest could not start it
    report = reports / (case.get("name") + ".xml")
    failed = int(status == "fail")
    if status in ("run", "fail") and report.exists():
        counts = count_cases(report, reasons)
        # A binary that fails outside its cases (a crash, a sanitizer) counts as a failure.
        return counts._replace(failed=max(counts.failed, failed))
    if status == "notrun":
        output = (case.findtext("system-out") or "").strip().splitlines()
        reasons[output[-1] if output else case.get("name")] += 1
        return Counts(0, 0, 1)
    return Counts(1 - failed, failed, 0)


def select(tests, pace, label):
    """Names by part of the tests that run, and how many are left to the other pace."""
    parts, left_out = collections.defaultdict(list), 0
    for name, (part, slow) in tests.items():
        if label not in (None, part):
            continue
        if slow == (pace == "slow"):
            parts[part].append(name)
        else:
            left_out += 1
    return parts, left_out


def describe(parts, last):
    words = []
    for part, names in sorted(parts.items()):
        seconds = f", {last[part]:.0f} s last time" if part in last else ""
        words.append(f"{part} ({len(names)}{seconds})")
    return " · ".join(words)


def load_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("pace", nargs="?", choices=["fast", "slow"], default="fast")
    parser.add_argument("--label", help="run this part only")
    parser.add_argument("-j", "--jobs", default=str(len(os.sched_getaffinity(0))))
    parser.add_argument("--ctest", default="ctest")
    return parser.parse_args()


def run_ctest(arguments, results):
    for report in (arguments.folder / "test_results").glob("*.xml"):
        report.unlink()
    command = [arguments.ctest, "--test-dir", str(arguments.folder), "-j", arguments.jobs,
               "--output-on-failure", "--no-tests=error", "--output-junit", str(results),
               "-L" if arguments.pace == "slow" else "-LE", "^slow$"]
    if arguments.label:
        command += ["-L", f"^{re.escape(arguments.label)}$"]
    return subprocess.run(command).returncode


def main():
    arguments = parse_arguments()
    reports = arguments.folder.resolve() / "test_results"
    reports.mkdir(exist_ok=True)
    times_file = arguments.folder / f"test_times_{arguments.pace}.json"
    tests = list_tests(str(arguments.folder), arguments.ctest)
    parts, left_out = select(tests, arguments.pace, arguments.label)
    last_times = load_json(times_file)
    print(f"parts that run: {describe(parts, last_times) or 'none'}")
    if left_out:
        other = "make test" if arguments.pace == "slow" else "make test-slow"
        print(f"left out ({other} runs them): {left_out}", flush=True)

    results = arguments.folder.resolve() / "ctest.xml"
    results.unlink(missing_ok=True)
    status = run_ctest(arguments, results)
    if not results.exists():
        print("0 passed, 1 failed, 0 skipped")
        return 1

    total, seconds, reasons = Counts(0, 0, 0), collections.Counter(), collections.Counter()
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        seconds[tests[case.get("name")][0]] += float(case.get("time"))
        total = Counts(*map(sum, zip(total, count_test(case, reports, reasons))))
    times_file.write_text(json.dumps({**last_times, **seconds}))
    print("time by part: " + " · ".join(f"{part} {s:.1f} s" for part, s in sorted(seconds.items())))
    for reason, count in sorted(reasons.items()):
        print(f"skipped {count}: {re.sub(r'^skipped: ', '', reason)}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return int(status != 0 or total.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
