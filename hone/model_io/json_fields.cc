// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/json_fields.h"

#include <cmath>
#include <utility>

#include "hone/core/check.h"

namespace hone::model_io {

JsonFields::JsonFields(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) fail_corrupt(where_, "a JSON object", object.type_name());
}

const Json* JsonFields::find(std::string_view key) const {
  const auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

void JsonFields::refuse(std::string_view key, std::string_view expected,
                        std::string_view got) const {
  fail_corrupt(where_, concat(expected, " for ", key), got);
}

std::optional<Index> JsonFields::integer(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) refuse(key, "a whole number", value->type_name());
  if (value->is_number_unsigned() && value->get<std::uint64_t>() >> 63 != 0)
    refuse(key, "a number below 2^63", "a larger one");
  return value->get<Index>();
}

std::optional<double> JsonFields::number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(key, "a number", value->type_name());
  const auto number = value->get<double>();
  if (!std::isfinite(number)) refuse(key, "a finite number", "one beyond double");
  return number;
}

std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "true or false", value->type_name());
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "a string", value->type_name());
  return value->get<std::string>();
}

std::optional<JsonFields> JsonFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return JsonFields(*value, concat(where_, ": ", key));
}

Index JsonFields::required_integer(std::string_view key) const {
  const std::optional<Index> value = integer(key);
  if (!value) fail_corrupt(where_, concat("The key ", key, " is missing."));
  return *value;
}

double JsonFields::required_number(std::string_view key) const {
  const std::optional<double> value = number(key);
  if (!value) fail_corrupt(where_, concat("The key ", key, " is missing."));
  return *value;
}

}  // namespace hone::model_io
