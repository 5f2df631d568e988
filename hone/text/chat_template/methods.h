// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "hone/text/chat_template/value.h"

namespace hone::text {

// value.name where that is a method of Python's str, list or dict that changes nothing.
std::optional<Value> method_of(const Value& value, std::string_view name);

}  // namespace hone::text
