// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/text/chat_template/value.h"

// The filters and tests of Jinja that chat templates use.
namespace hone::text {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// Throw Error{InvalidArgument} for values and arguments that the filter or test does not take.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);

// The items that a for visits: of a list, the keys of a dict, the characters of a text; none of an
// undefined value. Throws Error{InvalidArgument} for others.
ValueList items_of(const Value& value);
// value.name or value["name"] where a missing one is undefined: of a dict or an object.
Value member_of(const Value& value, std::string_view name);
// Whether a < b. Throws Error{InvalidArgument} for values without an order.
bool is_less(const Value& a, const Value& b);
// Whether `container` has `item`.
bool contains(const Value& container, const Value& item);
// The number of items, characters or entries.
std::int64_t length_of(const Value& value);

// The argument at `at` or of this name; null if there is none.
const Value* find_argument(const Arguments& arguments, std::size_t at, std::string_view name);

}  // namespace hone::text
