// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::server {

// The members of a JSON object from a client. A value of another type, or out of range, throws
// ApiError{400} that names it; null counts as absent. Keeps count of what nobody asked for.
class Fields {
 public:
  // `path` precedes the names in errors: "messages[0]". Throws unless `json` is an object.
  explicit Fields(const Json& json, std::string path = {});

  const Json& json() const { return json_; }
  bool has(std::string_view name) const;
  const Json* find(std::string_view name);  // null if absent
  std::optional<std::string> string(std::string_view name);
  std::string required_string(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<Index> integer(std::string_view name, Index low, Index high);
  // A string, or an array of strings; empty if absent.
  std::vector<std::string> strings(std::string_view name, std::size_t most);
  // Names the field as read, whatever it says.
  void accept(std::string_view name) { seen_.insert(std::string(name)); }
  // Throws ApiError{400} that the field is not supported, if it has a value other than null, false
  // and an empty one.
  void refuse(std::string_view name);
  // Throws ApiError{400} "<name>: expected …, got …".
  [[noreturn]] void fail(std::string_view name, std::string_view expected) const;

  // The members that were not read, in their order, as a value for a header field.
  std::string ignored_names() const;
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const;

 private:
  const Json& json_;
  std::string path_;
  std::set<std::string, std::less<>> seen_;
};

// Whether `encoding_format` asks for base64 instead of numbers. Throws ApiError{400}.
bool read_base64_choice(Fields& fields);

// Throws ApiError{404} unless `model` is absent or has the id of the served one.
void check_model(Fields& fields, const std::string& id);
// Throws ApiError{404} unless the path is /v1/models/ with that id.
void check_model_path(std::string_view path, const std::string& id);

// Two lists of names as one.
std::string join_names(const std::string& first, const std::string& second);

}  // namespace hone::server
