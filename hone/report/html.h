// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone::report {

// The page's style sheet and its table sorter, which render_html() puts inline.
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace hone::report
