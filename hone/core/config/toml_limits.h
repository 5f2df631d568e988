// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone {

// Throws Error{InvalidArgument} that names `where` and the line for a TOML key of more than 32
// parts ("a.b.c" has three). Each part is a nested table, and the parser recurses into nested
// tables.
void check_toml_keys(std::string_view text, std::string_view where);

}  // namespace hone
