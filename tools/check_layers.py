#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks includes between layers (docs/architecture.md, "Allowed includes").

tools/check_layers.py [--root FOLDER] [--build FOLDER]

It also checks that hone/infer names no family of models, because it knows them by traits alone.
With a build folder, it also checks that only the libraries train, app_torch and bench_torch, and
that of the tests with LibTorch, refer to LibTorch symbols. Prints one line per finding. Exits with
status 1 if there is a finding.
"""

import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys

# The part of a layer that others may include: the headers at the top level of infer.
FACADE = "infer/*.h"

# Maps each layer to the layers whose headers it may include besides its own.
ALLOWED = {
    "core": {},
    "text": {"core"},
    "model_io": {"core", "text"},
    "data": {"core", "text"},
    "kernels": {"core"},
    "infer": {"core", "text", "model_io", "kernels"},
    "measure": {"core"},
    "report": {"core", "measure/statistics.h", "measure/pareto.h"},
    "compress": {"core", "text", "model_io", "kernels", FACADE, "measure/statistics.h"},
    "tune": {"core", "measure"},
    "server": {"core", "text", FACADE},
    "train": {"core", "text", "model_io", "data", "kernels", "measure", "compress/method",
              "compress/format", "compress/recipe.h", "compress/quality/block_bootstrap.h"},
    "train/tuner": {"core", "text", "model_io", "data", "kernels", "measure", "train", "tune"},
    "bench": {"core", "text", "model_io", "data", "kernels", FACADE, "measure", "report",
              "compress", "server"},
    "bench/torch": {"core", "text", "model_io", "data", "kernels", FACADE, "measure", "report",
                    "compress", "server", "bench", "train"},
    "app": {"core", "text", "model_io", "data", "kernels", FACADE, "measure", "report", "compress",
            "tune", "server"},
    "app/torch": {"core", "text", "model_io", "data", "kernels", FACADE, "measure", "report",
                  "compress", "tune", "server", "app", "train", "train/tuner"},
    "cli": {"core", "measure/measure.h", "bench", "bench/torch", "app", "app/torch"},
    "python": {"core", "text", "kernels", FACADE, "compress", "train", "tune", "app", "app/torch"},
}
GENERATED = {"hone/version.h"}  # written by CMake into the build folder
SPLIT_LAYERS = {name for name in ALLOWED if "/" in name}
MAY_USE_TORCH = {"train", "train/tuner", "app/torch", "bench/torch", "python"}

# Folders whose direct children must not include each other in a cycle.
ACYCLIC = ("hone", "hone/train", "hone/kernels", "hone/kernels/multi_tensor")

TORCH_HEADER = re.compile(r"^(torch|ATen|c10)/")
CUDA_HEADER = re.compile(r"^(cuda|cublas|cuda_runtime|curand|cub/|cooperative_groups|nvml)")
FORMAT_HEADER = re.compile(r"^(fmt|spdlog)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ISA_FILE = re.compile(r"_(sse4|avx2|avxvnni|avx512|avx512vnni|amx)\.cc$")
ISA_SYSTEM_HEADERS = {"immintrin.h", "cstdint", "cstddef", "cstring", "stdint.h", "arm_neon.h",
                      "arm_sve.h"}
ISA_HONE_HEADERS = {"hone/core/index.h"}  # only names an integer type
# The table of families and a row's name in it. Other projects and formats may be named.
FAMILY_TABLE = "hone/model_io/family/family_table.cc"
FAMILY_NAME = re.compile(r'(?:llama_like\(|\bname = )"(\w+)"')
OTHER_NAMES = r"(?!\.cpp|2\.c)"
TORCH_SYMBOL = re.compile(r"(?<![\w:])(at|c10|torch)::")
TORCH_LIBRARIES = {"libhone_train.a", "libhone_app_torch.a", "libhone_bench_torch.a",
                   "libhone_torch_test_support.a"}


def layer_of(path):
    """Layer of a path below the root: "hone/app/torch/train_lm.cc" -> "app/torch"; None outside."""
    parts = path.split("/")
    if parts[0] == "python":
        return "python"
    if parts[0] != "hone" or len(parts) < 3:
        return None
    inner = "/".join(parts[1:3])
    return inner if inner in SPLIT_LAYERS and len(parts) > 3 else parts[1]


def check_hone_include(path, target):
    """Finding for `path` including hone header `target`, or None."""
    layer, other = layer_of(path), layer_of(target)
    if layer is None or other is None or layer == other:
        return None
    if layer not in ALLOWED:
        return f"{layer} is no layer of docs/architecture.md"
    allowed = ALLOWED[layer]
    if other in allowed:
        return None
    parts = sorted(part for part in allowed if part.startswith(other + "/"))
    inside = target.removeprefix("hone/")
    if any(fnmatch.fnmatch(inside, part) and inside.count("/") == part.count("/") or
           inside.startswith(part + "/") for part in parts):
        return None
    if parts:
        return f"{layer} may include only {' and '.join(parts)} of {other}, not {target}"
    return f"{layer} may not include {other} ({target})"


def check_system_include(path, target):
    layer = layer_of(path)
    if layer is None:
        return None
    if TORCH_HEADER.match(target) and layer not in MAY_USE_TORCH:
        return f"only train, app/torch and bench/torch may include LibTorch ({target})"
    if CUDA_HEADER.match(target):
        is_device = path.endswith((".cu", ".cuh")) or path.startswith("hone/kernels/cuda/")
        if not is_device:
            return f"CUDA headers belong into .cu, .cuh and kernels/cuda ({target})"
    if FORMAT_HEADER.match(target) and path.endswith(".h"):
        return f"no header includes fmt or spdlog: LibTorch ships another fmt ({target})"
    return None


def isa_findings(path, includes_of):
    """An ISA-flagged file sees, directly and through headers, only intrinsics, fixed-width integers
    and headers of its own kernel: whatever else it inlined would be compiled for the newer CPU, and
    the linker may pick that copy for everyone."""
    kernel = "/".join(path.split("/")[:3]) + "/"
    seen, queue = set(), [path]
    while queue:
        current = queue.pop()
        if current in seen:
            continue
        seen.add(current)
        for kind, target in includes_of.get(current, []):
            if kind == "<" and target not in ISA_SYSTEM_HEADERS:
                yield f"file with instruction-set flags reaches <{target}> through {current}"
            elif kind == '"' and target in ISA_HONE_HEADERS:
                continue
            elif kind == '"' and not target.startswith(kernel):
                yield f"file with instruction-set flags reaches {target} through {current}"
            elif kind == '"':
                queue.append(target)


def read_includes(root):
    """Maps every source and header below hone/ and python/ to its [(kind, target)]."""
    includes = {}
    for top in ("hone", "python"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                text = path.read_text(encoding="utf-8")
                includes[path.relative_to(root).as_posix()] = INCLUDE.findall(text)
    return includes


def find_include_violations(root):
    includes_of = read_includes(root)
    for path, includes in includes_of.items():
        for kind, target in includes:
            if target.startswith("hone/"):
                finding = check_hone_include(path, target)
                if finding is None and target not in GENERATED and not (root / target).exists():
                    finding = f"{target} does not exist"
            elif kind == '"' and path.startswith("hone/") and not TORCH_HEADER.match(target):
                finding = f'"{target}": include hone headers as "hone/…", others with <>'
            else:
                finding = check_system_include(path, target)
            if finding:
                yield f"{path}: {finding}"
        if ISA_FILE.search(path):
            for finding in isa_findings(path, includes_of):
                yield f"{path}: {finding}"


def find_family_names(root):
    """Yields a line for each family of models that a file of hone/infer names."""
    table = root / FAMILY_TABLE
    if not table.exists():
        return
    names = sorted({name.split("_")[0] for name in FAMILY_NAME.findall(table.read_text())})
    pattern = re.compile(rf"(?<![a-z])({'|'.join(names)}){OTHER_NAMES}", re.IGNORECASE)
    for path in sorted((root / "hone/infer").rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := pattern.search(line):
                yield (f"{path.relative_to(root).as_posix()}:{number}: infer may not name a family "
                       f"({found[1]}); make it a trait of Architecture")


def find_cycles(includes_of, top):
    """Yields a line for each include that is part of a cycle between the direct children of `top`
    (folders, and files with their headers)."""
    def node(path):
        rest = path.removeprefix(top + "/")
        return rest.split("/")[0].split(".")[0].removesuffix("_ref").removesuffix("-inl")

    arrows = {}
    for path, includes in includes_of.items():
        if not path.startswith(top + "/"):
            continue
        for _, target in includes:
            if target.startswith(top + "/") and node(target) != node(path):
                arrows.setdefault(node(path), {}).setdefault(node(target), f"{path} -> {target}")

    def reaches(begin, end):
        seen, queue = set(), [begin]
        while queue:
            current = queue.pop()
            if current == end:
                return True
            if current not in seen:
                seen.add(current)
                queue.extend(arrows.get(current, ()))
        return False

    for one, targets in sorted(arrows.items()):
        for other, example in sorted(targets.items()):
            if reaches(other, one):
                yield f"{top}: {one} and {other} include each other in a cycle ({example})"


def find_torch_symbols(build):
    for library in sorted(build.rglob("libhone_*.a")):
        if library.name in TORCH_LIBRARIES:
            continue
        names = subprocess.run(["nm", "-C", "--undefined-only", str(library)], check=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        for line in names.splitlines():
            if TORCH_SYMBOL.search(line):
                yield f"{library.name}: refers to LibTorch: {line.strip()}"
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=pathlib.Path)
    arguments = parser.parse_args()
    findings = list(find_include_violations(arguments.root))
    includes_of = read_includes(arguments.root)
    findings += find_family_names(arguments.root)
    for top in ACYCLIC:
        findings += find_cycles(includes_of, top)
    if arguments.build is not None:
        findings += find_torch_symbols(arguments.build)
    for finding in findings:
        print(finding)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
