// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone {

// Formatting for code that includes LibTorch's headers, which ship another version of fmt.

// Decimal: kB of 1000 bytes, MB, GB, TB. Binary: KiB of 1024 bytes, MiB, GiB, TiB.
enum class ByteUnits { Decimal, Binary };
// "999 bytes", "98.4 MB", "1.5 GiB": three digits, in the largest unit not above `bytes`.
std::string format_bytes(Index bytes, ByteUnits units = ByteUnits::Decimal);

// "1,234,567".
std::string group_digits(Index number);

// Formats rows of cells as a table, with two spaces between columns. sides[i] aligns column i:
// flush left ('l') or right ('r'). Rows may be shorter. Text is UTF-8; each code point takes a
// column of the terminal.
std::string format_table(const std::vector<std::vector<std::string>>& rows, std::string_view sides);

// "3.14" for (3.14159, 2).
std::string fixed(double value, int decimals);
// Pads with spaces to at least `width` characters, on the left or on the right.
std::string align_right(std::string_view text, Index width);
std::string align_left(std::string_view text, Index width);

}  // namespace hone
