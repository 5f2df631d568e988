// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hone/core/function_ref.h"
#include "hone/core/index.h"

namespace hone {

// Returns the index of a name that also occurs earlier, or -1. Calls name(i) for i in [0, n). Takes
// O(n log n) time for any names, and 16 n bytes.
Index find_duplicate(Index n, FunctionRef<std::string_view(Index)> name);

// Returns `text` with every byte of a control character (C0, DEL, C1) and every byte that is not
// UTF-8 as \xNN. Use it for text from a file that is shown on a line: a terminal must not act on
// it.
std::string escape_controls(std::string_view text);

// Returns 'name' for an error message: at most 80 bytes, bytes outside printable ASCII as \xNN.
std::string quote_name(std::string_view name);

// "a, b, c".
std::string join_names(std::span<const std::string_view> names);

}  // namespace hone
