// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"

namespace hone::text {

// Checked access to a component of a JSON document. Absent and null values read as the default.
class JsonField {
 public:
  JsonField(const Json& object, std::string_view where) : object_(object), where_(where) {
    if (!object.is_object()) fail_corrupt(where, "a JSON object", object.type_name());
  }

  const Json* find(std::string_view key) const {
    const auto found = object_.find(std::string(key));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& require(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) fail_corrupt(where_, concat("There is no \"", key, "\"."));
    return *value;
  }
  bool flag(std::string_view key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean())
      fail_corrupt(where_, concat("true or false as \"", key, "\""), text(*value));
    return value->get<bool>();
  }
  std::string string(std::string_view key, std::string_view otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return std::string(otherwise);
    if (!value->is_string())
      fail_corrupt(where_, concat("a string as \"", key, "\""), text(*value));
    return value->get<std::string>();
  }
  std::string type() const { return string("type", ""); }

  // The start of a value, for error messages.
  static std::string text(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 120);
  }

 private:
  const Json& object_;
  std::string_view where_;
};

}  // namespace hone::text
