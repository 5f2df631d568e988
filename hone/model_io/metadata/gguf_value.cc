// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/gguf_value.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hone/text/unicode/utf8.h"

namespace hone::model_io {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames{
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

template <class T>
T read_raw(const std::byte*& at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

// Moves `at` behind the value.
Json read_scalar(GgufValueType type, const std::byte*& at) {
  switch (type) {
    case GgufValueType::U8:
      return read_raw<std::uint8_t>(at);
    case GgufValueType::I8:
      return read_raw<std::int8_t>(at);
    case GgufValueType::U16:
      return read_raw<std::uint16_t>(at);
    case GgufValueType::I16:
      return read_raw<std::int16_t>(at);
    case GgufValueType::U32:
      return read_raw<std::uint32_t>(at);
    case GgufValueType::I32:
      return read_raw<std::int32_t>(at);
    case GgufValueType::U64:
      return read_raw<std::uint64_t>(at);
    case GgufValueType::I64:
      return read_raw<std::int64_t>(at);
    case GgufValueType::F32:
      return static_cast<double>(read_raw<float>(at));
    case GgufValueType::F64:
      return read_raw<double>(at);
    case GgufValueType::Bool:
      return read_raw<std::uint8_t>(at) != 0;
    case GgufValueType::String: {
      const auto size = static_cast<std::size_t>(read_raw<std::uint64_t>(at));
      std::string text(reinterpret_cast<const char*>(at), size);
      at += size;
      return text;
    }
    case GgufValueType::Array:
      break;  // parse_gguf() refuses arrays of arrays
  }
  return nullptr;
}

template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool append_integer(std::string& out, const Json& value) {
  if (!value.is_number_integer()) return false;
  const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                               : std::in_range<T>(value.get<std::int64_t>());
  if (fits) append_raw(out, value.get<T>());
  return fits;
}

template <class T>
bool append_number(std::string& out, const Json& value) {
  if (!value.is_number()) return false;
  append_raw(out, static_cast<T>(value.get<double>()));
  return true;
}

bool append_string(std::string& out, const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  if (!text::is_valid_utf8(text)) return false;
  append_raw(out, static_cast<std::uint64_t>(text.size()));
  out += text;
  return true;
}

// False if it is no value of the type.
bool append_scalar(std::string& out, GgufValueType type, const Json& value) {
  switch (type) {
    case GgufValueType::U8:
      return append_integer<std::uint8_t>(out, value);
    case GgufValueType::I8:
      return append_integer<std::int8_t>(out, value);
    case GgufValueType::U16:
      return append_integer<std::uint16_t>(out, value);
    case GgufValueType::I16:
      return append_integer<std::int16_t>(out, value);
    case GgufValueType::U32:
      return append_integer<std::uint32_t>(out, value);
    case GgufValueType::I32:
      return append_integer<std::int32_t>(out, value);
    case GgufValueType::U64:
      return append_integer<std::uint64_t>(out, value);
    case GgufValueType::I64:
      return append_integer<std::int64_t>(out, value);
    case GgufValueType::F32:
      return append_number<float>(out, value);
    case GgufValueType::F64:
      return append_number<double>(out, value);
    case GgufValueType::Bool:
      if (value.is_boolean()) append_raw(out, static_cast<std::uint8_t>(value.get<bool>()));
      return value.is_boolean();
    case GgufValueType::String:
      return append_string(out, value);
    case GgufValueType::Array:
      break;
  }
  return false;
}

}  // namespace

Json decode_gguf_value(const GgufValue& value) {
  const std::byte* at = value.bytes.data();
  if (!value.is_array) return read_scalar(value.type, at);
  Json list = Json::array();
  for (Index i = 0; i < value.count; ++i) list.push_back(read_scalar(value.type, at));
  return list;
}

std::optional<std::string> encode_gguf_value(GgufValueType type, const Json& value) {
  std::string out;
  if (!value.is_array()) return append_scalar(out, type, value) ? std::optional(out) : std::nullopt;
  for (const Json& one : value) {
    if (!append_scalar(out, type, one)) return std::nullopt;
  }
  return out;
}

std::string_view name_of(GgufValueType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::optional<GgufValueType> find_value_type(std::string_view name) {
  const auto at = std::ranges::find(kTypeNames, name);
  if (at == kTypeNames.end()) return std::nullopt;
  return static_cast<GgufValueType>(at - kTypeNames.begin());
}

}  // namespace hone::model_io
