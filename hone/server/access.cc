// SPDX-License-Identifier: Apache-2.0
#include "hone/server/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <random>
#include <set>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/sha256.h"
#include "hone/server/api/api_error.h"

namespace hone::server {
namespace {

constexpr std::array<std::string_view, 4> kOpen = {"/livez", "/readyz", "/health", "/v1/health"};
constexpr Index kMostKeyBytes = Index{1} << 20;

// An address 127.x.y.z; no name that only begins so.
bool is_loopback_address(std::string_view host) {
  in_addr address{};
  const bool is_address = inet_pton(AF_INET, std::string(host).c_str(), &address) == 1;
  return is_address && (ntohl(address.s_addr) >> 24) == 127;
}

bool is_loopback_name(std::string_view name) {
  const std::string host = lower_case(name);
  return host == "localhost" || host == "::1" || host == "[::1]" || is_loopback_address(host);
}

// "localhost:8080", "[::1]:80" without the port; the whole where something else follows.
std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  const bool has_port =
      colon != host.npos && host.find_first_not_of("0123456789", colon + 1) == host.npos;
  const bool is_bare_ipv6 = !host.starts_with('[') && host.find(':') != colon;
  return has_port && !is_bare_ipv6 && !host.ends_with(']') ? host.substr(0, colon) : host;
}

// "http://localhost:3000" without scheme and port.
std::string_view host_of_origin(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return without_port(scheme == std::string_view::npos ? origin : origin.substr(scheme + 3));
}

// Takes as long whether or not they are equal.
bool is_equal(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |=
        static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  if (const auto field = request.fields.find("authorization")) {
    const std::string_view scheme = field->substr(0, kBearer.size());
    if (lower_case(scheme) == kBearer) return field->substr(kBearer.size());
  }
  return request.fields.find("x-api-key").value_or("");
}

}  // namespace

std::vector<ApiKey> read_api_keys(const std::string& file) {
  const std::string text = read_text_file(file, kMostKeyBytes);
  std::vector<ApiKey> keys;
  std::set<std::string> seen, names;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string one = text.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    while (!one.empty() && (one.back() == '\r' || one.back() == ' ')) one.pop_back();
    if (one.empty() || one[0] == '#') continue;
    const std::size_t colon = one.find(':');
    ApiKey key{.name = colon == std::string::npos ? concat("key", line) : one.substr(0, colon),
               .key = colon == std::string::npos ? one : one.substr(colon + 1)};
    if (key.key.size() < 8) {
      fail_corrupt(file, concat("a key of at least 8 characters in line ", line),
                   concat(key.key.size()));
    }
    if (!seen.insert(key.key).second || !names.insert(key.name).second) {
      fail_corrupt(file, concat("Line ", line, " repeats a key or a name."));
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) fail_corrupt(file, "The file has no key.");
  return keys;
}

Access::Access(const ServerOptions& options)
    : origins_(options.cors_origins),
      is_loopback_(is_loopback_name(options.listener.host)),
      opens_metrics_(options.opens_metrics) {
  HONE_REQUIRE(is_loopback_ || !options.keys.empty() || options.allow_anonymous, "serve",
               concat("Other machines reach ", options.listener.host,
                      ": give clients keys (--api-key-file), or allow everybody "
                      "(--allow-anonymous)."));
  for (const std::string& origin : origins_) {
    HONE_CHECK(origin == "*" || origin.find("://") != std::string::npos, "--cors-origin",
               "* or an origin such as https://example.org", origin);
  }
  std::random_device device;
  for (const ApiKey& key : options.keys) {
    // Salts are random, so that nobody can guess another one's cached prefixes.
    keys_.push_back(
        {.sha256 = sha256_hex_of_text(key.key), .salt = std::uint64_t{device()} << 32 | device()});
  }
}

bool Access::is_open(std::string_view path) const {
  return std::ranges::find(kOpen, path) != kOpen.end() || (opens_metrics_ && path == "/metrics");
}

bool Access::allows_origin(std::string_view origin) const {
  return std::ranges::any_of(origins_, [origin](const std::string& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

// A page of another site can make a browser ask a server of this machine.
void Access::check_host(const HttpRequest& request) const {
  if (request.fields.count("host") > 1) {
    throw ApiError(400, "The header Host must come once.", {}, "host");
  }
  const auto origin = request.fields.find("origin");
  if (origin && !allows_origin(*origin)) {
    const bool is_local = is_loopback_ && is_loopback_name(host_of_origin(*origin));
    const auto host = request.fields.find("host");
    const bool is_own = host && host_of_origin(*origin) == without_port(*host);
    if (!is_local && !is_own) {
      throw ApiError(403, "Pages of this origin may not ask (--cors-origin).", {}, "origin");
    }
  }
  if (!is_loopback_ || !keys_.empty()) return;
  const auto host = request.fields.find("host");
  if (host && is_loopback_name(without_port(*host))) return;
  throw ApiError(403, "The server answers under the name of this machine's loopback only.", {},
                 "host");
}

std::uint64_t Access::check(const HttpRequest& request) const {
  check_host(request);
  if (keys_.empty() || is_open(request.path)) return 0;
  const std::string digest = sha256_hex_of_text(key_of(request));
  const Digest* found = nullptr;
  for (const Digest& key : keys_) {
    if (is_equal(key.sha256, digest)) found = &key;
  }
  if (found == nullptr) {
    throw ApiError(401, "The API key is missing or wrong.", {}, "invalid_api_key");
  }
  return found->salt;
}

HttpFields Access::cors_fields(const HttpRequest& request) const {
  const auto origin = request.fields.find("origin");
  if (!origin || !allows_origin(*origin)) return {};
  return {{"Access-Control-Allow-Origin", std::string(*origin)},
          {"Vary", "Origin"},
          {"Access-Control-Allow-Headers", "authorization, content-type, x-api-key"},
          {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
          {"Access-Control-Expose-Headers", "x-request-id, x-hone-ignored, retry-after"},
          {"Access-Control-Max-Age", "600"}};
}

}  // namespace hone::server
