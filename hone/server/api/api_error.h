// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "hone/core/file/json_io.h"
#include "hone/server/http/http_message.h"

namespace hone::server {

// An answer to a request that cannot be served, in the shape of the OpenAI API.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string message, std::string param = {}, std::string code = {});

  int status() const { return status_; }
  std::string_view type() const;  // "invalid_request_error", …
  // {"error": {"message", "type", "param", "code", …}}
  Json body() const;
  HttpResponse response() const;

  Json details = Json::object();  // further members of `error`
  int retry_after_s = 0;          // above 0: the header Retry-After
  std::string allow{};            // the header Allow, of status 405

 private:
  int status_;
  std::string param_, code_;
};

// An error that passes: the client may come again.
ApiError passing_error(int status, std::string message, std::string code = {});
// The error of a server that is about to end.
ApiError ending_error();

// The ApiError for any exception of the library: hone::Error by its category and refusal, ApiError
// itself, and 500 for everything else.
ApiError to_api_error(const std::exception_ptr& error);

}  // namespace hone::server
