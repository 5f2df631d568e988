// SPDX-License-Identifier: Apache-2.0
#include "hone/server/http/http_message.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

namespace hone::server {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

struct Phrase {
  int status;
  std::string_view text;
};
constexpr std::array<Phrase, 17> kPhrases = {{{200, "OK"},
                                              {204, "No Content"},
                                              {400, "Bad Request"},
                                              {401, "Unauthorized"},
                                              {403, "Forbidden"},
                                              {404, "Not Found"},
                                              {405, "Method Not Allowed"},
                                              {413, "Payload Too Large"},
                                              {415, "Unsupported Media Type"},
                                              {417, "Expectation Failed"},
                                              {429, "Too Many Requests"},
                                              {431, "Request Header Fields Too Large"},
                                              {500, "Internal Server Error"},
                                              {501, "Not Implemented"},
                                              {503, "Service Unavailable"},
                                              {504, "Gateway Timeout"},
                                              {505, "HTTP Version Not Supported"}}};

}  // namespace

std::optional<std::string_view> HttpFields::find(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (std::ranges::equal(key, name, {}, lower, lower)) return value;
  }
  return std::nullopt;
}

std::size_t HttpFields::count(std::string_view name) const {
  return static_cast<std::size_t>(std::ranges::count_if(fields_, [&](const auto& field) {
    return std::ranges::equal(field.first, name, {}, lower, lower);
  }));
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const end = text.data() + std::min(text.size(), i + 3);
    const bool is_code = text[i] == '%' &&
                         end - text.data() == static_cast<std::ptrdiff_t>(i + 3) &&
                         std::from_chars(text.data() + i + 1, end, value, 16).ptr == end;
    out.push_back(is_code ? static_cast<char>(value) : text[i]);
    if (is_code) i += 2;
  }
  return out;
}

std::string media_type(const HttpRequest& request) {
  std::string_view type = request.fields.find("content-type").value_or("");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return lower_case(type);
}

std::string_view reason_phrase(int status) {
  const auto* const found = std::ranges::find(kPhrases, status, &Phrase::status);
  return found == kPhrases.end() ? "Unknown" : found->text;
}

}  // namespace hone::server
