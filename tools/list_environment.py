#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of commands' options to docs/environment.md, from hone/cli/cmd_*.cc and the
options that they share (*_options.h).

Run it after adding an option; tools/check_style.py reports missing variables.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/environment.md"
BEGIN, END = "<!-- begin: tools/list_environment.py -->\n", "<!-- end -->\n"
OPTION = re.compile(
    r'add_(?:option|flag)\(\s*"(?P<names>[^"]+)"(?P<rest>(?:(?!add_(?:option|flag)\().)*?)'
    r'->envname\("(?P<variable>HONE_\w+)"\)', re.DOTALL)
SHARED = re.compile(r'#include "hone/cli/(\w+_options)\.h"')
HELP = re.compile(r'"((?:[^"\\]|\\.)*)"')


def find_options():
    """variable -> [(command, option, help)]"""
    found = {}
    for path in sorted((ROOT / "hone/cli").glob("cmd_*.cc")):
        command = path.stem.removeprefix("cmd_").replace("_", " ")
        text = path.read_text(encoding="utf-8")
        for name in SHARED.findall(text):
            text += (path.parent / f"{name}.cc").read_text(encoding="utf-8")
        for match in OPTION.finditer(text):
            # Adjacent literals form one string. The help is the first string argument.
            rest = re.sub(r'"\s*\n\s*"', "", match.group("rest"))
            meaning = HELP.search(rest)
            option = next(name for name in match.group("names").split(",") if name.startswith("--"))
            found.setdefault(match.group("variable"), []).append(
                (command, option, meaning.group(1) if meaning else ""))
    return found


def table(found):
    rows = ["| variable | command and option | meaning |\n|---|---|---|\n"]
    for variable, uses in sorted(found.items()):
        commands = ", ".join(f"`{command} {option}`" for command, option, _ in uses)
        meanings = "; ".join(dict.fromkeys(text for _, _, text in uses)).replace("|", "\\|")
        rows.append(f"| `{variable}` | {commands} | {meanings} |\n")
    return "".join(rows)


def main():
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + table(find_options()) + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
