// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/core/index.h"

namespace hone {

// Formatting for code that sees LibTorch's headers, which bring another version of fmt.

// "3.14" for (3.14159, 2).
std::string fixed(double value, int decimals);
// At least `width` characters, filled with spaces in front or behind.
std::string align_right(std::string_view text, Index width);
std::string align_left(std::string_view text, Index width);

}  // namespace hone
