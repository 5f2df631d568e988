// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hone/core/file/json_io.h"

namespace hone::model_io {

// Typed look-ups in a JSON object from a file. Absent and null values are empty; a value of another
// kind throws Error{CorruptFile} that names the file and the key.
class JsonFields {
 public:
  // Throws Error{CorruptFile} if `object` is not an object.
  JsonFields(const Json& object, std::string where);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool mentions(std::string_view key) const { return object_->contains(key); }  // perhaps as null
  const Json* find(std::string_view key) const;  // null if absent or null
  std::optional<Index> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // finite
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  // The fields of a nested object; empty if absent.
  std::optional<JsonFields> object(std::string_view key) const;

  Index required_integer(std::string_view key) const;
  double required_number(std::string_view key) const;

  const std::string& where() const { return where_; }
  [[noreturn]] void refuse(std::string_view key, std::string_view expected,
                           std::string_view got) const;

 private:
  const Json* object_;
  std::string where_;
};

}  // namespace hone::model_io
