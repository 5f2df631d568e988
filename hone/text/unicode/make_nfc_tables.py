#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes nfc_tables.cc beside this script from Python's unicodedata. Run by hand when the Unicode
version is to change; the result is kept in the tree so that a build needs no Python."""
import pathlib
import sys
import unicodedata

HANGUL = range(0xAC00, 0xD7A4)


def collect():
    pairs, classes = [], []
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        combining = unicodedata.combining(char)
        if combining:
            if classes and classes[-1][1] == code - 1 and classes[-1][2] == combining:
                classes[-1][1] = code
            else:
                classes.append([code, code, combining])
        parts = unicodedata.decomposition(char)
        if not parts or parts.startswith("<") or code in HANGUL:
            continue
        parts = [int(p, 16) for p in parts.split()]
        first, second = parts[0], parts[1] if len(parts) > 1 else 0
        composes = second and unicodedata.normalize("NFC", chr(first) + chr(second)) == char
        pairs.append((code, first, second, bool(composes)))
    return pairs, classes


def rows(items, width=96):
    lines, line = [], " "
    for item in items:
        if len(line) + 1 + len(item) > width:
            lines.append(line)
            line = " "
        line += " " + item
    return "\n".join(lines + [line])


def main():
    pairs, classes = collect()
    excluded = [p[0] for p in pairs if p[2] and not p[3]]
    out = f"""// SPDX-License-Identifier: Apache-2.0
// Written by make_nfc_tables.py from Unicode {unicodedata.unidata_version}.
// clang-format off
#include "hone/text/unicode/nfc_tables.h"

namespace hone::text {{

const Decomposition kDecompositions[] = {{
{rows(f"{{0x{c:X},0x{a:X},0x{b:X}}}," for c, a, b, _ in pairs)}
}};
const int kDecompositionCount = {len(pairs)};

const CombiningRange kCombiningRanges[] = {{
{rows(f"{{0x{a:X},0x{b:X},{k}}}," for a, b, k in classes)}
}};
const int kCombiningRangeCount = {len(classes)};

const char32_t kCompositionExclusions[] = {{
{rows(f"0x{c:X}," for c in excluded)}
}};
const int kCompositionExclusionCount = {len(excluded)};

}}  // namespace hone::text
"""
    path = pathlib.Path(__file__).with_name("nfc_tables.cc")
    path.write_text(out, encoding="utf-8")


if __name__ == "__main__":
    main()
