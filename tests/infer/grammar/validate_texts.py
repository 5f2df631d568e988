#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges texts by the package jsonschema.

validate_texts.py CASES

CASES is a JSON list of {"schema": …, "texts": [text, …]}. Prints {"texts": count, "invalid":
[{"schema", "text", "reason"}, …]}. Numbers are decimals, so that bounds are compared exactly.
"""

import decimal
import json
import pathlib
import sys

import jsonschema


def parse(text):
    # All 64 digits that a number may have.
    return json.loads(text, parse_float=decimal.Decimal)


def is_number(_, value):
    return isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool)


def is_integer(_, value):
    return is_number(_, value) and value == int(value)


def main():
    decimal.getcontext().prec = 200
    base = jsonschema.Draft202012Validator
    types = base.TYPE_CHECKER.redefine_many({"number": is_number, "integer": is_integer})
    validator = jsonschema.validators.extend(base, type_checker=types)
    invalid, count = [], 0
    for case in parse(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")):
        judge = validator(case["schema"])
        for text in case["texts"]:
            count += 1
            try:
                error = jsonschema.exceptions.best_match(judge.iter_errors(parse(text)))
                reason = error and error.message
            except ValueError as problem:
                reason = str(problem)
            if reason:
                invalid.append({"schema": json.dumps(case["schema"], default=str), "text": text,
                                "reason": reason})
    print(json.dumps({"texts": count, "invalid": invalid}))


if __name__ == "__main__":
    main()
