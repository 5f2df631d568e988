// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone {

// Error{InvalidArgument} naming `where` and the line for a TOML key of more than 32 parts ("a.b.c"
// has three): each is a table in a table, and the parser descends into them on the stack.
void check_toml_keys(std::string_view text, std::string_view where);

}  // namespace hone
