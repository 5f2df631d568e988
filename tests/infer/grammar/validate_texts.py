#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges texts by the package jsonschema.

validate_texts.py CASES

CASES is a JSON list of {"schema": …, "texts": [text, …]}. Prints {"texts": count, "strings": {name:
count}, "invalid": [{"schema", "text", "reason"}, …]}. The names are "pattern" and formats, with the
number of strings that were judged by them. Numbers are decimals, so that bounds are compared
exactly. Patterns are those of ECMA-262. Formats are checked here, by their specifications, because
jsonschema has few of them.
"""

import collections
import datetime
import decimal
import functools
import ipaddress
import json
import pathlib
import re
import sys
import urllib.parse
import uuid

import jsonschema

sys.dont_write_bytecode = True  # none in the source tree
import ecma_regex  # beside this file

# RFC 3339, appendix A.
CLOCK = r"T(?!$)(\d+H)?(\d+M)?(\d+S)?"
DURATION = re.compile(rf"P(?!$)(?:(\d+Y)?(\d+M)?(\d+D)?(?:{CLOCK})?|\d+W)", re.ASCII)
TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:Z|[+-](\d\d):(\d\d))", re.ASCII)
# RFC 5322: dot-atom. RFC 1123: a label.
ATOM = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+")
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
# RFC 3986: what a URI may be made of.
URI_TEXT = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def is_date(text):
    matches = re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None
    return matches and datetime.date.fromisoformat(text) is not None


def is_time(text):
    match = TIME.fullmatch(text)
    if match is None:
        return False
    hour, minute, second, offset_hour, offset_minute = (int(part or 0) for part in match.groups())
    return hour < 24 and minute < 60 and second < 60 and offset_hour < 24 and offset_minute < 60


def is_date_time(text):
    return text[10:11] == "T" and is_date(text[:10]) and is_time(text[11:])


def is_duration(text):
    match = DURATION.fullmatch(text)
    if match is None:
        return False
    # No unit between two others is left out.
    year, month, day, hour, minute, second = (part is not None for part in match.groups())
    return not (year and day and not month) and not (hour and second and not minute)


def is_uuid(text):
    return str(uuid.UUID(text)) == text.lower()


def is_hostname(text):
    return len(text) <= 253 and all(LABEL.fullmatch(label) for label in text.split("."))


def is_email(text):
    local, _, domain = text.rpartition("@")
    is_local = len(local) <= 64 and all(ATOM.fullmatch(atom) for atom in local.split("."))
    return is_local and is_hostname(domain)


def is_ipv4(text):
    return str(ipaddress.IPv4Address(text)) == text


def is_ipv6(text):
    return "%" not in text and ipaddress.IPv6Address(text) is not None


def is_uri_reference(text):
    parts = urllib.parse.urlsplit(text)
    is_host = parts.hostname is None or is_hostname(parts.hostname)
    return (URI_TEXT.fullmatch(text) is not None and "[" not in parts.path + parts.query
            and "#" not in parts.fragment and is_host and (parts.port or 0) < 65536)


def is_uri(text):
    scheme, colon, _ = text.partition(":")
    return colon == ":" and SCHEME.fullmatch(scheme) is not None and is_uri_reference(text)


FORMATS = {"date": is_date, "time": is_time, "date-time": is_date_time, "duration": is_duration,
           "uuid": is_uuid, "email": is_email, "hostname": is_hostname, "ipv4": is_ipv4,
           "ipv6": is_ipv6, "uri": is_uri, "uri-reference": is_uri_reference}
judged = collections.Counter()


def check_format(_, name, value, __):
    if not isinstance(value, str):
        return
    judged[name] += 1
    try:
        fits = FORMATS[name](value)
    except ValueError:
        fits = False
    if not fits:
        yield jsonschema.ValidationError(f"{value!r} is no {name}")


@functools.lru_cache(maxsize=None)
def expression_of(pattern):
    return re.compile(ecma_regex.translate(pattern), re.ASCII)


def check_pattern(_, pattern, value, __):
    if not isinstance(value, str):
        return
    judged["pattern"] += 1
    if expression_of(pattern).search(value) is None:
        yield jsonschema.ValidationError(f"{pattern!r} is not found in {value!r}")


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
    validator = jsonschema.validators.extend(
        base, {"format": check_format, "pattern": check_pattern}, type_checker=types)
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
    print(json.dumps({"texts": count, "strings": judged, "invalid": invalid}))


if __name__ == "__main__":
    main()
