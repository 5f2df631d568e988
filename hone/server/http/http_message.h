// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone::server {

// The header fields of a message, in their order; names compare without case.
class HttpFields {
 public:
  HttpFields() = default;
  HttpFields(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}

  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  std::size_t count(std::string_view name) const;
  // The first field of this name.
  std::optional<std::string_view> find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& all() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

// A request whose framing and limits have been checked.
struct HttpRequest {
  std::string method{}, path{}, query{};  // "POST", "/v1/models", "beta=true"
  HttpFields fields{};
  std::string body{};
  std::string id{};  // its X-Request-Id, given or made
};

// In ASCII.
std::string lower_case(std::string_view text);
// With %2F and the like as the characters that they stand for.
std::string percent_decoded(std::string_view text);
// The type of the body in lower case, without parameters: "application/json".
std::string media_type(const HttpRequest& request);

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  HttpFields fields{};
};

std::string_view reason_phrase(int status);

}  // namespace hone::server
