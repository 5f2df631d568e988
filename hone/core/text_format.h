// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/core/index.h"

namespace hone {

// Formatting for code that includes LibTorch's headers, which ship another version of fmt.

// "3.14" for (3.14159, 2).
std::string fixed(double value, int decimals);
// Pads with spaces to at least `width` characters, on the left or on the right.
std::string align_right(std::string_view text, Index width);
std::string align_left(std::string_view text, Index width);

}  // namespace hone
