// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hone/server/http/http_message.h"
#include "hone/server/server.h"

namespace hone::server {

// Who may ask.
class Access {
 public:
  // Throws Error{InvalidArgument} for an address that other machines reach, without keys or
  // allow_anonymous.
  explicit Access(const ServerOptions& options);

  // The tenant of a request. Throws ApiError{401} without a right key, and ApiError{403} for a host
  // or an origin that may not ask.
  std::uint64_t check(const HttpRequest& request) const;
  // Whether the path needs no key.
  bool is_open(std::string_view path) const;
  // The header fields that let a page of the request's origin read the answer.
  HttpFields cors_fields(const HttpRequest& request) const;

 private:
  struct Digest {
    std::string sha256;
    std::uint64_t salt = 0;
  };
  void check_host(const HttpRequest& request) const;
  bool allows_origin(std::string_view origin) const;

  std::vector<Digest> keys_;
  std::vector<std::string> origins_;
  bool is_loopback_ = false, opens_metrics_ = false;
};

}  // namespace hone::server
