# SPDX-License-Identifier: Apache-2.0
"""Scans C++ just well enough for the style budgets: where functions begin and end and how many
parameters they have. There is no preprocessor: lines that begin with # are treated as blank."""

import collections
import re

# One function definition or declaration; lines count from 1, length is 0 for a declaration.
Function = collections.namedtuple("Function", "name line length parameters")

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'                                    # comments
    r'|R"(?P<raw>[^()\\ ]{0,16})\(.*?\)(?P=raw)"'            # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                                  # strings
    r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'"                 # characters, not digit separators
    r'|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE)   # directives
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
NOT_A_NAME = {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignas", "alignof",
              "decltype", "static_assert", "noexcept", "requires", "defined", "operator",
              "__attribute__", "throw", "new", "delete", "constexpr", "explicit"}
NAME = re.compile(r"(operator\s*(?:\(\)|\[\]|[^\s\w(]{1,3}|[\w:]+)|[~\w][\w:~]*)\s*\($")
BRACE_INIT = re.compile(r"[\w>]\s*$")
BODY_AFTER = re.compile(r"(\)|\bconst|\bnoexcept|\boverride|\bfinal|\btry|&|\bmutable)\s*$")


def blank_out(text):
    """The text with comments, literals and directives replaced by spaces; same length and lines."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return TOKEN.sub(spaces, text)


def matching(text, start, pair="()"):
    """The index of the bracket that closes text[start], or len(text)."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] == pair[0]:
            depth += 1
        elif text[i] == pair[1]:
            depth -= 1
            if depth == 0:
                return i
    return len(text)


def find_classes(text):
    """(name, line, lines of the body) of every class and struct that has a body."""
    text = blank_out(text)
    for match in re.finditer(r"\b(?:class|struct)\s+(\w+)[^;{}()]*\{", text):
        begin = match.end() - 1
        end = matching(text, begin, "{}")
        yield match.group(1), text.count("\n", 0, begin) + 1, text.count("\n", begin, end)


def find_parameters(header):
    """(name, parameter text) of the function that a declaration header declares, or None."""
    position, depth = 0, 0
    while position < len(header):
        c = header[position]
        if c == "<" and header[position - 1:position] not in ("<", "="):
            depth += 1
        elif c == ">" and header[position - 1:position] != "-":
            depth -= 1
        elif c == "=" and depth <= 0 and "operator" not in header[:position]:
            return None
        elif c == "(":
            end = matching(header, position)
            match = NAME.search(header[:position + 1])
            if match and match.group(1) not in NOT_A_NAME and depth <= 0:
                if not header[end + 1:].lstrip().startswith("("):  # operator() (…)
                    return match.group(1), header[position + 1:end]
            elif match is None and header[:position].rstrip().endswith("]"):
                return None
            position = end
        position += 1
    return None


def count_parameters(text):
    if text.strip() in ("", "void"):
        return 0
    depth, count = 0, 1
    for i, c in enumerate(text):
        if c in "<([{":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1:i] != "-"):
            depth -= 1
        elif c == "," and depth == 0:
            count += 1
    return count


def is_macro_call(header, name):
    """Whether it is TEST(Suite, name) or similar: all capitals with nothing before them."""
    return name.isupper() and header.strip().startswith(name)


def scan_functions(text):
    """Yields the functions of a C++ file at namespace and class scope."""
    text = blank_out(text)
    position = start = 0
    while position < len(text):
        c = text[position]
        header = text[start:position]
        if c == "(":
            position = matching(text, position)
        elif c in ";}":
            if c == ";":
                yield from describe(text, start, header, None, position)
            start = position + 1
        elif c == ":" and re.fullmatch(r"\s*(public|private|protected)\s*", header):
            start = position + 1
        elif c == "{":
            parts = find_parameters(header)
            is_scope = SCOPE.search(re.sub(r"template\s*<[^{]*?>\s*(?=\w)", "", header))
            if parts is None and is_scope and "=" not in header:
                start = position + 1  # look inside
            elif parts and BRACE_INIT.search(header) and not BODY_AFTER.search(header) and \
                    re.search(r"\)\s*(noexcept\s*)?:[^:]", header):
                position = matching(text, position, "{}")  # member initializer: b_{1}
            else:
                end = matching(text, position, "{}")
                yield from describe(text, start, header, end, position)
                position = end
                start = end + 1
        position += 1


def describe(text, start, header, end, position):
    parts = find_parameters(header)
    if parts is None:
        return
    name, parameters = parts
    first = start + len(header) - len(header.lstrip())
    line = text.count("\n", 0, first) + 1
    length = 0 if end is None else text.count("\n", first, end) + 1
    count = 0 if is_macro_call(header, name) else count_parameters(parameters)
    if is_macro_call(header, name) and end is not None:
        name = f"{name}({' '.join(parameters.split())})"
    yield Function(name, line, length, count)
