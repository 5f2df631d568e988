#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the budgets of docs/architecture.md: lengths, parameters, folders, license lines, banned
calls, comments that begin with a fragment, the ratio of tests to code, and that docs/environment.md
lists all environment variables.

tools/check_style.py [--root FOLDER]

Exceptions are listed in tools/style_allow.txt, one "rule key: reason" per line; an exception that
matches nothing is a finding, too. Prints one line per finding and a summary. Exits with status 1 if
there is a finding.
"""

import argparse
import pathlib
import re
import statistics
import sys

import cxx_scan

CXX = (".h", ".cc", ".cu", ".cuh")
TOPS = ("hone", "python", "tests", "bench", "examples", "cmake", "tools", ".ci")
MAX_FILE, MAX_FUNCTION, MAX_KERNEL_FUNCTION, MAX_CLASS = 800, 80, 120, 200
MAX_PARAMETERS, MAX_FOLDER, MAX_WIDTH = 8, 40, 100
MAX_IF_PER_1000 = 4.0  # #if lines outside kernels
TARGETS = {"file median": 120, "file p90": 400, "function median": 10, "function p90": 35}
# The minimum ratio of test lines to code lines by folder.
TEST_RATIOS = {"kernels": 1.0, "core": 0.6, "infer": 0.6, "": 0.5}
LICENSE = "SPDX-License-Identifier: Apache-2.0"

# (rule, pattern, folders it applies to, files that may do it, what to do instead)
BANNED = [
    ("no_abort", re.compile(r"(?<![.\w>])(assert|abort|_?exit|quick_exit|terminate)\s*\("), "hone/",
     (), "throw hone::Error"),
    ("no_printing",
     re.compile(r"std::(cout|cerr|clog)\b|\b(f|v|vf)?printf\s*\(|\b(fputs|puts)\s*\("),
     "hone/", ("hone/core/progress.cc", "hone/cli/"), "use core/log.h"),
    ("no_threads", re.compile(r"std::(thread|jthread|async)\b"), "hone/kernels/", (),
     "take an Executor"),
    ("own_paths", re.compile(r"/(home|Users|root)/\w"), "", ("tools/check_style.py",),
     "do not use absolute paths"),
]
FRAGMENT = re.compile(r"\s*(?P<mark>//|/\*+) (?P<words>Of|That of|Those)\b")
ENVIRONMENT_NAME = re.compile(r'"(HONE_[A-Z0-9_]+)"')
DOCUMENTED_NAME = re.compile(r"`(HONE_[A-Z0-9_]+)`")


class Finding:
    def __init__(self, rule, key, text):
        self.rule, self.key, self.text = rule, key, text


def list_files(root):
    """Maps paths below the root to the texts of all files that are checked."""
    files = {}
    for top in TOPS:
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and is_source(path):
                files[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return files


def is_source(path):
    if "__pycache__" in path.parts:
        return False
    if path.suffix in CXX + (".py", ".cmake", ".sh") or path.name == "CMakeLists.txt":
        return True
    if path.suffix:
        return False
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def is_kernel(path):
    return "/kernels/" in path


def check_text(path, text):
    lines = text.splitlines()
    if not any(LICENSE in line for line in lines[:2]):
        yield Finding("license", path, f"the first line must contain {LICENSE}")
    if len(lines) > MAX_FILE:
        yield Finding("file_lines", path, f"{len(lines)} lines, limit {MAX_FILE}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_WIDTH and "http" not in line:
            yield Finding("width", path, f"line {number} is {len(line)} wide, limit {MAX_WIDTH}")
    # Patterns for calls ignore literals; patterns for text do not.
    code = cxx_scan.blank_out(text) if path.endswith(CXX) else text
    for rule, pattern, folder, meant, instead in BANNED:
        if not path.startswith(folder) or path.startswith(meant or "\n"):
            continue
        match = pattern.search(text if not folder and path.endswith(CXX) else code)
        if match:
            line = text.count("\n", 0, match.start()) + 1
            yield Finding(rule, path, f"line {line}: {match.group(0).strip()}: {instead}")


def check_comments(path, text):
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = FRAGMENT.match(line)
        # A comment in the same column of the line before begins the block.
        if match and not before.startswith("//", match.start("mark")):
            yield Finding("fragment", path, f"line {number}: comment begins with"
                          f" '{match.group('words')}', a fragment: give it a subject")
        before = line


def check_functions(path, functions):
    limit = MAX_KERNEL_FUNCTION if is_kernel(path) else MAX_FUNCTION
    for function in functions:
        where = f"line {function.line}: {function.name}"
        key = f"{path}:{function.name}"
        if function.length > limit:
            yield Finding("function_lines", key,
                          f"{where} has {function.length} lines, limit {limit}")
        if function.parameters > MAX_PARAMETERS:
            yield Finding("parameters", key,
                          f"{where} takes {function.parameters} parameters, limit {MAX_PARAMETERS}")


def check_classes(path, text):
    for name, line, length in cxx_scan.find_classes(text):
        if length > MAX_CLASS:
            yield Finding("class_lines", f"{path}:{name}",
                          f"line {line}: {name} has {length} lines, limit {MAX_CLASS}")


def check_folders(files):
    folders = {}
    for path in files:
        folder = path.rpartition("/")[0]
        folders[folder] = folders.get(folder, 0) + 1
    for folder, count in folders.items():
        if count > MAX_FOLDER:
            yield Finding("folder_files", folder, f"{count} files, limit {MAX_FOLDER}")


def check_conditionals(files):
    lines = conditionals = 0
    for path, text in files.items():
        if path.startswith("hone/") and path.endswith(CXX) and not is_kernel(path):
            lines += text.count("\n")
            conditionals += len(re.findall(r"^\s*#\s*if", text, re.MULTILINE))
    if conditionals > MAX_IF_PER_1000 * max(lines, 1000) / 1000:
        yield Finding("conditionals", "hone", f"{conditionals} #if in {lines} lines outside"
                      f" kernels, limit {MAX_IF_PER_1000:g} per 1000")


def count_lines(files, prefix):
    return sum(text.count("\n") for path, text in files.items() if path.startswith(prefix))


def check_test_ratios(files):
    for folder, least in TEST_RATIOS.items():
        suffix = folder + "/" if folder else ""
        code, tests = count_lines(files, "hone/" + suffix), count_lines(files, "tests/" + suffix)
        if tests < least * code:
            yield Finding("test_ratio", folder or "all",
                          f"{tests} test lines for {code} code lines; the minimum ratio is {least}")


def check_environment(files, root):
    used = {}
    for path, text in files.items():
        is_tool = path.startswith(("tools/", "tests/tools/"))
        if path.endswith(CXX) or path.endswith(".py") and not is_tool:
            for name in ENVIRONMENT_NAME.findall(text):
                used.setdefault(name, path)
    page = root / "docs/environment.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    documented = set(DOCUMENTED_NAME.findall(text))
    for name in sorted(used.keys() - documented):
        yield Finding("environment", name, f"{used[name]}: {name} is not in docs/environment.md")
    for name in sorted(documented - used.keys()):
        yield Finding("environment", name, f"docs/environment.md: no code reads {name}")


def read_allowed(root):
    """(rule, key) -> reason."""
    allowed = {}
    page = root / "tools/style_allow.txt"
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else []:
        match = re.fullmatch(r"(\w+) (.+?): (.+)", line)
        if match:
            allowed[match.group(1), match.group(2)] = match.group(3)
        elif line and not line.startswith("#"):
            raise SystemExit(f'tools/style_allow.txt: expected "rule key: reason", got "{line}"')
    return allowed


def find_all(files, functions, root):
    for path, text in files.items():
        yield from check_text(path, text)
        if path.endswith(CXX):
            yield from check_comments(path, text)
        yield from check_functions(path, functions.get(path, ()))
        if path.startswith("hone/") and path.endswith(CXX):
            yield from check_classes(path, text)
    yield from check_folders(files)
    yield from check_conditionals(files)
    yield from check_test_ratios(files)
    yield from check_environment(files, root)


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def summarize(files, functions):
    lines = [text.count("\n") for path, text in files.items() if path.endswith(CXX)]
    lengths = [f.length for group in functions.values() for f in group if f.length > 0]
    found = {"file median": statistics.median(lines or [0]), "file p90": percentile(lines, 0.9),
             "function median": statistics.median(lengths or [0]),
             "function p90": percentile(lengths, 0.9)}
    words = []
    for name, value in found.items():
        over = "over " if value > TARGETS[name] else ""
        words.append(f"{name} {value:g} ({over}target {TARGETS[name]})")
    return f"style: {len(files)} files, {len(lengths)} functions; " + ", ".join(words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    files = list_files(root)
    functions = {path: list(cxx_scan.scan_functions(text))
                 for path, text in files.items() if path.endswith(CXX)}
    allowed = read_allowed(root)
    unused = dict(allowed)
    failed = False
    for finding in find_all(files, functions, root):
        unused.pop((finding.rule, finding.key), None)
        if (finding.rule, finding.key) not in allowed:
            failed = True
            place = "" if finding.key in finding.text else f"{finding.key}: "
            print(f"{place}{finding.text} [{finding.rule}]")
    for rule, key in unused:
        failed = True
        print(f"tools/style_allow.txt: {rule} {key} matches nothing")
    print(summarize(files, functions))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
