#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Patterns of JSON Schema (ECMA-262 with the u flag) for Python's re.

translate(PATTERN) is found in the same texts by re.search(…, re.ASCII). Only what differs is
translated. Raises ValueError for what the tests do not need.
"""

import re

# \s of ECMA-262: WhiteSpace and LineTerminator.
SPACES = "\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}


class Translator:
    def __init__(self, pattern):
        self.pattern, self.at = pattern, 0

    def take(self, text):
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def next(self, count=1):
        part = self.pattern[self.at:self.at + count]
        if len(part) < count:
            raise ValueError(f"The pattern {self.pattern!r} ends too early.")
        self.at += count
        return part

    def escaped_character(self):
        """The character of an escape whose backslash has been read; None if it is a set."""
        c = self.next()
        if c in "dDwWsS":
            return None
        if c in ESCAPES:
            return ESCAPES[c]
        if c == "x":
            return chr(int(self.next(2), 16))
        if c == "c":
            return chr(ord(self.next()) % 32)
        if c == "u" and self.take("{"):
            end = self.pattern.index("}", self.at)
            return chr(int(self.next(end + 1 - self.at)[:-1], 16))
        if c == "u":
            unit = int(self.next(4), 16)
            if 0xd800 <= unit < 0xdc00 and self.take("\\u"):
                return chr(0x10000 + (unit - 0xd800) * 0x400 + int(self.next(4), 16) - 0xdc00)
            return chr(unit)
        if c.isalnum():
            raise ValueError(f"The escape \\{c} is not translated.")
        return c

    def set_of_escape(self, in_class):
        c = self.pattern[self.at - 1]
        if c == "s":
            return SPACES if in_class else f"[{SPACES}]"
        if c == "S" and in_class:
            raise ValueError("\\S in a class is not translated.")
        return f"[^{SPACES}]" if c == "S" else "\\" + c

    def group(self):
        if not self.take("?<"):
            return "("
        if self.pattern[self.at] in "=!":
            raise ValueError("Look-behind is not translated.")
        self.at = self.pattern.index(">", self.at) + 1
        return "(?:"

    def bracket(self):
        if self.take("^]"):
            return "(?s:.)"
        if self.take("]"):
            return "(?!)"
        out = "[^" if self.take("^") else "["
        while not self.take("]"):
            if self.take("\\b"):
                out += "\\x08"
            elif self.take("\\"):
                c = self.escaped_character()
                out += self.set_of_escape(True) if c is None else re.escape(c)
            else:
                c = self.next()
                out += "-" if c == "-" else re.escape(c)
        return out + "]"

    def translate(self):
        out = ""
        while self.at < len(self.pattern):
            c = self.next()
            if c == "\\":
                escaped = self.escaped_character()
                out += self.set_of_escape(False) if escaped is None else re.escape(escaped)
            elif c == "[":
                out += self.bracket()
            elif c == "(":
                out += self.group()
            elif c == ".":
                out += "[^\n\r\u2028\u2029]"
            elif c == "$":
                out += "\\Z"
            else:
                out += c
        return out


def translate(pattern):
    return Translator(pattern).translate()
