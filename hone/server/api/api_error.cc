// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/api_error.h"

#include <utility>

#include "hone/core/check.h"
#include "hone/infer/request.h"
#include "hone/server/api/json_text.h"

namespace hone::server {
namespace {

// The text without "[where] ", which is for programmers.
std::string sentence_of(std::string_view what) {
  const std::size_t end = what.find("] ");
  if (!what.starts_with('[') || end == std::string_view::npos) return std::string(what);
  const std::string_view where = what.substr(1, end - 1);
  return concat(where, ": ", what.substr(end + 2));
}

ApiError from_refusal(const infer::RefusedError& error) {
  const std::string_view what = error.what();
  const std::string message(what.substr(what.starts_with('[') ? what.find("] ") + 2 : 0));
  switch (error.refusal()) {
    case infer::Refusal::QueueFull:
      return passing_error(429, message, "queue_full");
    case infer::Refusal::TenantFull:
      return passing_error(429, message, "too_many_requests");
    case infer::Refusal::PromptTooLong:
      return {400, message, "messages", "context_length_exceeded"};
    case infer::Refusal::DeadlinePassed:
      break;
  }
  return {504, message, "timeout", "deadline_passed"};
}

int status_of(ErrorCategory category) {
  switch (category) {
    case ErrorCategory::InvalidArgument:
    case ErrorCategory::CorruptFile:  // malformed JSON or schemas
    case ErrorCategory::Unsupported:
      return 400;
    case ErrorCategory::NotFound:
      return 404;
    case ErrorCategory::Resource:
    case ErrorCategory::Cancelled:
      return 503;
    default:
      return 500;
  }
}

}  // namespace

ApiError::ApiError(int status, std::string message, std::string param, std::string code)
    : std::runtime_error(std::move(message)),
      status_(status),
      param_(std::move(param)),
      code_(std::move(code)) {}

std::string_view ApiError::type() const {
  switch (status_) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
    case 405:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return "invalid_request_error";
  }
}

Json ApiError::body() const {
  Json error = {{"message", what()},
                {"type", type()},
                {"param", param_.empty() ? Json() : Json(param_)},
                {"code", code_.empty() ? Json() : Json(code_)}};
  error.update(details);
  // The first member is for clients of the Anthropic API.
  return {{"type", "error"}, {"error", std::move(error)}};
}

HttpResponse ApiError::response() const {
  HttpResponse out{.status = status_, .body = json_text(body()) + "\n"};
  if (retry_after_s > 0) out.fields.add("Retry-After", std::to_string(retry_after_s));
  if (!allow.empty()) out.fields.add("Allow", allow);
  if (status_ == 401) out.fields.add("WWW-Authenticate", "Bearer");
  return out;
}

ApiError passing_error(int status, std::string message, std::string code) {
  ApiError out(status, std::move(message), {}, std::move(code));
  out.retry_after_s = 1;
  return out;
}

ApiError ending_error() { return passing_error(503, "The server is about to end."); }

ApiError to_api_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& own) {
    return own;
  } catch (const infer::RefusedError& refused) {
    return from_refusal(refused);
  } catch (const Error& ours) {
    ApiError out(status_of(ours.category()), sentence_of(ours.what()));
    if (out.status() == 503) out.retry_after_s = 1;
    return out;
  } catch (const std::bad_alloc&) {
    return passing_error(503, "There is not enough memory.");
  } catch (const std::exception&) {
    return {500, "The server failed. Its log says more."};
  }
}

}  // namespace hone::server
