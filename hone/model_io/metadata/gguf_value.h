// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "hone/core/file/json_io.h"
#include "hone/core/format/gguf.h"

namespace hone::model_io {

// A value or an array of values as JSON. Strings are taken as they are, also if they are no UTF-8.
Json decode_gguf_value(const GgufValue& value);

// The reverse: GgufValue::bytes of a value, or of all elements of an array. Empty if the JSON is no
// value of this type or no UTF-8.
std::optional<std::string> encode_gguf_value(GgufValueType type, const Json& value);

// "u8", "i8", …, "f32", "bool", "string", "u64", "i64", "f64".
std::string_view name_of(GgufValueType type);
std::optional<GgufValueType> find_value_type(std::string_view name);

}  // namespace hone::model_io
