// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/core/function_ref.h"
#include "hone/core/index.h"

namespace hone {

// The position of a name that also occurs earlier, or -1. Calls name(i) for i in [0, n). Takes O(n
// log n) time for any names, and 16 n bytes.
Index find_duplicate(Index n, FunctionRef<std::string_view(Index)> name);

// 'name' in quotes for an error message: at most 80 bytes of it, with bytes outside printable ASCII
// as \xNN.
std::string quote_name(std::string_view name);

}  // namespace hone
