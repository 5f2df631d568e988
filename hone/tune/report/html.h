// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone::tune {

// The page's look and its table sorter; render_html() puts them inline.
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace hone::tune
