// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "hone/text/chat_template/value.h"

// The operators of Python on values. They throw Error{InvalidArgument} for values that they do not
// take.
namespace hone::text {

// + - * / // % ** ~, with texts and lists of at most `most_bytes`.
Value arithmetic(std::string_view name, const Value& left, const Value& right,
                 std::size_t most_bytes);
Value negative(const Value& value);
// value[begin:end:step]
Value slice_of(const Value& value, const std::array<std::optional<std::int64_t>, 3>& parts);

}  // namespace hone::text
