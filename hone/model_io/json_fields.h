// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hone/core/json_io.h"

namespace hone::model_io {

// Typed look-ups in a JSON object that came from a file. Absent and null are both "nothing"; a
// value of another kind is Error{CorruptFile} naming file and key.
class JsonFields {
 public:
  // Error{CorruptFile} when `object` is none.
  JsonFields(const Json& object, std::string where);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;  // null when absent or null
  std::optional<Index> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // finite
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  // The fields of an object below; nothing when absent.
  std::optional<JsonFields> object(std::string_view key) const;

  Index required_integer(std::string_view key) const;
  double required_number(std::string_view key) const;

  const std::string& where() const { return where_; }
  [[noreturn]] void refuse(std::string_view key, std::string_view wanted,
                           std::string_view got) const;

 private:
  const Json* object_;
  std::string where_;
};

}  // namespace hone::model_io
