// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/server/api/api_error.h"

namespace hone::server {
namespace {

// A value as errors show it.
std::string shown(const Json& value) {
  constexpr std::size_t kMost = 60;
  if (value.is_structured()) return concat("an ", value.type_name(), " of ", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = concat(text.substr(0, kMost), "…");
  return text;
}

[[noreturn]] void fail_model(std::string_view model, std::string_view id) {
  throw ApiError(404,
                 concat("The model ", quote_name(model), " is not served; this server has ",
                        quote_name(id), "."),
                 "model", "model_not_found");
}

}  // namespace

Fields::Fields(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
  if (json.is_object()) return;
  throw ApiError(
      400, concat(path_.empty() ? "The body" : path_, ": expected an object, got ", shown(json)),
      path_);
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : concat(path_, ".", name);
}

bool Fields::has(std::string_view name) const {
  const auto found = json_.find(name);
  return found != json_.end() && !found->is_null();
}

const Json* Fields::find(std::string_view name) {
  accept(name);
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::fail(std::string_view name, std::string_view expected) const {
  const auto found = json_.find(name);
  throw ApiError(400,
                 concat(path_of(name), ": expected ", expected, ", got ",
                        found == json_.end() ? "nothing" : shown(*found)),
                 path_of(name));
}

void Fields::refuse(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || *value == false || (value->is_structured() && value->empty())) return;
  throw ApiError(400, concat(path_of(name), ": This server does not support it."), path_of(name),
                 "unsupported_parameter");
}

std::optional<std::string> Fields::string(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, "a string");
  return value->get<std::string>();
}

std::string Fields::required_string(std::string_view name) {
  const std::optional<std::string> value = string(name);
  if (!value) fail(name, "a string");
  return *value;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(name, "true or false");
  return value->get<bool>();
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = concat("a number of ", low, " to ", high);
  if (!value->is_number()) fail(name, expected);
  const auto number = value->get<double>();
  if (!(number >= low && number <= high)) fail(name, expected);
  return number;
}

std::optional<Index> Fields::integer(std::string_view name, Index low, Index high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = concat("a whole number of ", low, " to ", high);
  // Some clients write 10.0.
  if (!value->is_number()) fail(name, expected);
  const auto number = value->get<double>();
  if (number != std::floor(number) || number < static_cast<double>(low) ||
      number > static_cast<double>(high)) {
    fail(name, expected);
  }
  return value->is_number_float() ? static_cast<Index>(number) : value->get<Index>();
}

std::vector<std::string> Fields::strings(std::string_view name, std::size_t most) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  const std::string expected = concat("a string, or up to ", most, " of them");
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || value->size() > most) fail(name, expected);
  std::vector<std::string> out;
  for (const Json& item : *value) {
    if (!item.is_string()) fail(name, expected);
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::string Fields::ignored_names() const {
  constexpr std::size_t kMost = 512;
  std::string out;
  for (const auto& [name, value] : json_.items()) {
    const bool is_plain = std::ranges::all_of(name, [](char c) { return c > ' ' && c < 127; });
    if (seen_.contains(name) || value.is_null() || !is_plain) continue;
    if (out.size() + name.size() > kMost) break;
    out += concat(out.empty() ? "" : ", ", name);
  }
  return out;
}

bool read_base64_choice(Fields& fields) {
  const std::string format = fields.string("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.fail("encoding_format", "float or base64");
  return format == "base64";
}

void check_model(Fields& fields, const std::string& id) {
  const std::optional<std::string> model = fields.string("model");
  if (model && !model->empty() && *model != id) fail_model(*model, id);
}

void check_model_path(std::string_view path, const std::string& id) {
  constexpr std::string_view kModels = "/v1/models/";
  const std::string model = percent_decoded(path.substr(std::min(path.size(), kModels.size())));
  if (model != id) fail_model(model, id);
}

std::string join_names(const std::string& first, const std::string& second) {
  return concat(first, first.empty() || second.empty() ? "" : ", ", second);
}

}  // namespace hone::server
