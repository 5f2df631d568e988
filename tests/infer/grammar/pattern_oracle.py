#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In which texts Python's re finds patterns.

pattern_oracle.py CASES

CASES is a JSON list of {"pattern", "alphabet": [character, …], "length"}. Prints a JSON list with
a string for each case: "1" or "0" for each text over the alphabet of at most this length, shorter
ones first, the last character changing fastest.
"""

import itertools
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # none in the source tree
import ecma_regex  # beside this file


def judge(case):
    expression = re.compile(ecma_regex.translate(case["pattern"]), re.ASCII)
    texts = ("".join(characters) for length in range(case["length"] + 1)
             for characters in itertools.product(case["alphabet"], repeat=length))
    return "".join("01"[expression.search(text) is not None] for text in texts)


def main():
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps([judge(case) for case in cases]))


if __name__ == "__main__":
    main()
