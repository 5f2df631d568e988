#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that pages and comments name only what the tree holds.

tools/check_docs.py [--root FOLDER]

- Every path below a top folder (hone/…, docs/…, tests/…) and every source or page name with a
  suffix (rule/lion.h, cuda.md) that a page or a comment names exists; so does every local link and
  the heading that it points to.
- No page, comment or test name refers to a numbered oracle of a document outside the tree.
- Lines of pages have at most 120 characters, tables excepted.
- docs/README.md links every page below docs/.
- docs/tour.md names at most 10 files in its section on the gradient.
- The table of docs/architecture.md, "Allowed includes", is that of tools/check_layers.py, for the
  layers that exist.

Prints one line per finding; exit status 1 when there is one.
"""

import argparse
import fnmatch
import pathlib
import re
import sys

import check_layers

TOPS = ("hone", "docs", "tests", "tools", "bench", "examples", "cmake", ".ci")
ROOT_PAGES = ("README.md", "CHANGELOG.md")
CXX = (".h", ".cc", ".cu", ".cuh")
MAX_PAGE_WIDTH = 120
MAX_GRADIENT_FILES = 10
GRADIENT_HEADING = "## One gradient"

# A path below a top folder, with globs and {a,b} as a shell has them.
ROOTED = re.compile(r"(?<![\w./$~<>-])((?:hone|docs|tests|tools|bench|examples|cmake)/"
                    r"[\w.+*{},/-]*[\w*}/])")
# A file by its last part or parts: "adam.h", "rule/lion.{h,cc}", "cuda.md".
SUFFIX = r"(?:h|cc|cu|cuh|py|md)"
NAMED = re.compile(r"(?<![\w./$~<>…*-])((?:[\w-]+/)*[A-Za-z0-9][\w-]*\."
                   rf"(?:{SUFFIX}|\{{{SUFFIX}(?:,{SUFFIX})*\}}))(?![\w*(/-])")
# Headers and scripts of other software, and a user's own program.
FOREIGN = ("hwy/*", "torch/*", "ATen/*", "c10/*", "highway.h", "export.py", "main.cc")
ORACLE = re.compile(r"\boracles? \d+|\bOracle\d+(?=[\b_,)])", re.IGNORECASE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CXX_PARTS = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                       r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|(//[^\n]*|/\*.*?\*/)", re.DOTALL)
SCRIPT_PARTS = re.compile(r'("""(?:.*?)""")|(?:^|\s)(#[^\n]*)', re.DOTALL)
TEST_NAME = re.compile(r"^TEST(?:_F|_P)?\((.*?)\)", re.MULTILINE | re.DOTALL)


def list_tree(root):
    """Paths of all files and folders below the top folders, as a set of text."""
    paths = set()
    for top in TOPS:
        for path in (root / top).rglob("*"):
            if "__pycache__" not in path.parts:
                paths.add(path.relative_to(root).as_posix())
        if (root / top).is_dir():
            paths.add(top)
    for path in root.iterdir():
        if path.is_file():
            paths.add(path.name)
    return paths


def expand_braces(text):
    match = re.search(r"\{([^{}]*)\}", text)
    if match is None:
        return [text]
    head, tail = text[:match.start()], text[match.end():]
    parts = match.group(1).split(",")
    return [name for part in parts for name in expand_braces(head + part + tail)]


def exists_rooted(name, paths):
    """Also a layer, bench/torch, without the hone/ before it."""
    name = name.rstrip("/")
    if "*" in name:
        return any(fnmatch.fnmatch(path, name) for path in paths)
    return name in paths or f"hone/{name}" in paths


def exists_named(name, paths):
    return any(path == name or path.endswith("/" + name) for path in paths)


def is_foreign(name):
    return any(fnmatch.fnmatch(name, pattern) for pattern in FOREIGN)


def unknown_names(text, paths):
    """(position, name) of every path in `text` that the tree does not hold."""
    for match in ROOTED.finditer(text):
        for name in expand_braces(match.group(1)):
            if not exists_rooted(name, paths):
                yield match.start(), name
    for match in NAMED.finditer(text):
        for name in expand_braces(match.group(1)):
            rooted = name.split("/")[0] in TOPS and "/" in name
            if not rooted and not is_foreign(name) and not exists_named(name, paths):
                yield match.start(), name


def comments_of(path, text):
    """(position, comment) of a source file."""
    is_cxx = path.endswith(CXX)
    for match in (CXX_PARTS if is_cxx else SCRIPT_PARTS).finditer(text):
        group = 2 if is_cxx else (1 if match.group(1) else 2)
        if match.group(group):
            yield match.start(group), match.group(group)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_source(path, text, paths):
    for start, comment in comments_of(path, text):
        for position, name in unknown_names(comment, paths):
            yield f"{path}:{line_of(text, start + position)}: {name} does not exist"
        for match in ORACLE.finditer(comment):
            yield (f"{path}:{line_of(text, start + match.start())}: {match.group(0)} is a number of"
                   " a document that is not in the tree")
    for match in TEST_NAME.finditer(text if path.endswith(CXX) else ""):
        if ORACLE.search(match.group(1)):
            yield (f"{path}:{line_of(text, match.start())}: test {match.group(1)} has the number of"
                   " an oracle; say what it checks")


def slug_of(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings_of(text):
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif not inside and re.match(r"#+ ", line):
            yield line.lstrip("#").strip()


def links_of(text):
    """(position, target) of every link that stays in the tree."""
    for match in LINK.finditer(re.sub(r"```.*?```", lambda m: " " * len(m.group(0)), text,
                                      flags=re.DOTALL)):
        target = match.group(1) or match.group(2)
        if not re.match(r"\w+:", target):
            yield match.start(), target


def resolve(page, target):
    """Path below the root of a link of a page."""
    parts = page.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in (".", ""):
            parts.append(part)
    return "/".join(parts)


def check_page(page, text, paths, pages):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_PAGE_WIDTH and not line.startswith("|"):
            yield f"{page}:{number}: {len(line)} characters, limit {MAX_PAGE_WIDTH}"
    for position, name in unknown_names(text, paths):
        yield f"{page}:{line_of(text, position)}: {name} does not exist"
    for match in ORACLE.finditer(text):
        yield (f"{page}:{line_of(text, match.start())}: {match.group(0)} is a number of a document"
               " that is not in the tree")
    for position, link in links_of(text):
        target, _, anchor = link.partition("#")
        path = resolve(page, target) if target else page
        if path not in paths:
            yield f"{page}:{line_of(text, position)}: the link {link} leads nowhere"
        elif anchor and anchor not in map(slug_of, headings_of(pages.get(path, ""))):
            yield f"{page}:{line_of(text, position)}: {path} has no heading #{anchor}"


def check_index(pages):
    index = "docs/README.md"
    if index not in pages:
        yield f"{index} does not exist"
        return
    linked = {resolve(index, target.partition("#")[0]) for _, target in links_of(pages[index])}
    for page in sorted(pages.keys() - linked - {index}):
        if page.startswith("docs/"):
            yield f"{index}: no link to {page}"


def check_tour(pages):
    tour = pages.get("docs/tour.md", "")
    begin = tour.find(GRADIENT_HEADING)
    if begin < 0:
        yield f'docs/tour.md: no section "{GRADIENT_HEADING}"'
        return
    end = tour.find("\n## ", begin + 1)
    section = tour[begin:end if end >= 0 else len(tour)]
    files = {name for match in ROOTED.finditer(section) for name in expand_braces(match.group(1))
             if "." in name.rpartition("/")[2]}
    if len(files) > MAX_GRADIENT_FILES:
        yield (f"docs/tour.md: {len(files)} files on the way of one gradient, limit"
               f" {MAX_GRADIENT_FILES}")


def rows_below(text, heading):
    """Cells of the first table below a heading, the line of dashes left out."""
    lines = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines
            if line.startswith("|")]
    return [row for row in rows if not re.fullmatch(r":?-+:?", row[0])]


def allowed_targets(layer):
    """Layers, and LibTorch, of which check_layers lets some part of `layer` include something."""
    parts = [part for part in check_layers.ALLOWED if part.split("/")[0] == layer]
    targets = {target.split("/")[0] for part in parts for target in check_layers.ALLOWED[part]}
    if any(part in check_layers.MAY_USE_TORCH for part in parts):
        targets.add("LibTorch")
    return targets - {layer}


def check_include_table(pages, paths):
    page = "docs/architecture.md"
    heading = "## Allowed includes"
    rows = rows_below(pages.get(page, ""), heading)
    if not rows:
        yield f'{page}: no table below "{heading}"'
        return
    columns = rows[0][1:]
    layers = {layer.split("/")[0] for layer in check_layers.ALLOWED}
    present = {layer for layer in layers if f"hone/{layer}" in paths}
    listed = {row[0]: row[1:] for row in rows[1:]}
    for layer in sorted(present - listed.keys() | present - set(columns)):
        yield f"{page}: {layer} has no row or no column below \"{heading}\""
    for layer, cells in listed.items():
        said = {column for column, cell in zip(columns, cells) if cell not in ("", "·")}
        held = allowed_targets(layer) & (present | {"LibTorch"})
        for target in sorted((said ^ held) & (present | {"LibTorch"})):
            yield (f"{page}: {layer} to {target} is {'allowed' if target in said else 'forbidden'}"
                   " there, but not in tools/check_layers.py")


def is_source(path):
    return path.endswith(CXX + (".py", ".cmake", "CMakeLists.txt")) or path in (
        "Makefile", ".ci/run", "tools/build", "tools/lint", "tools/setup")


def find_all(root):
    paths = list_tree(root)
    pages = {path: (root / path).read_text(encoding="utf-8") for path in sorted(paths)
             if path in ROOT_PAGES or path.startswith("docs/") and path.endswith(".md")}
    for page, text in pages.items():
        yield from check_page(page, text, paths, pages)
    yield from check_index(pages)
    yield from check_tour(pages)
    yield from check_include_table(pages, paths)
    for path in sorted(paths):
        # The tests of this tool name files that must not exist.
        if is_source(path) and not path.startswith("tests/tools/") and (root / path).is_file():
            yield from check_source(path, (root / path).read_text(encoding="utf-8"), paths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    findings = list(find_all(parser.parse_args().root))
    for finding in findings:
        print(finding)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
