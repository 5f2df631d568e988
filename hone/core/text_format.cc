// SPDX-License-Identifier: Apache-2.0
#include "hone/core/text_format.h"

#include <fmt/format.h>

namespace hone {

std::string fixed(double value, int decimals) { return fmt::format("{:.{}f}", value, decimals); }

std::string align_right(std::string_view text, Index width) {
  return fmt::format("{:>{}}", text, width);
}

std::string align_left(std::string_view text, Index width) {
  return fmt::format("{:<{}}", text, width);
}

}  // namespace hone
