// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone::server {

// The page of the server: page.html, which refers to nothing else.
std::string_view page_text();

}  // namespace hone::server
