// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "hone/core/error.h"
#include "hone/core/index.h"

namespace hone {

// Joins strings, characters and numbers: concat("row ", 3, " of ", n). Floating point prints as %g.
// Headers use this instead of fmt, because LibTorch ships another version of fmt.
template <class... Parts>
std::string concat(const Parts&... parts);

// Throws Error{category} with the message "[op] expected <expected>, got <got>".
[[noreturn]] void fail(ErrorCategory category, std::string_view op, std::string_view expected,
                       std::string_view got);
// Like the above for errors that compare nothing: the message is "[op] <sentence>". The sentence
// starts with a capital and ends with a period, or with the system's own reason after a colon.
[[noreturn]] void fail(ErrorCategory category, std::string_view op, std::string_view sentence);

[[noreturn]] inline void fail_argument(std::string_view op, std::string_view expected,
                                       std::string_view got) {
  fail(ErrorCategory::InvalidArgument, op, expected, got);
}
[[noreturn]] inline void fail_argument(std::string_view op, std::string_view sentence) {
  fail(ErrorCategory::InvalidArgument, op, sentence);
}
[[noreturn]] inline void fail_corrupt(std::string_view file, std::string_view expected,
                                      std::string_view got) {
  fail(ErrorCategory::CorruptFile, file, expected, got);
}
[[noreturn]] inline void fail_corrupt(std::string_view file, std::string_view sentence) {
  fail(ErrorCategory::CorruptFile, file, sentence);
}
[[noreturn]] inline void fail_unsupported(std::string_view op, std::string_view expected,
                                          std::string_view got) {
  fail(ErrorCategory::Unsupported, op, expected, got);
}
[[noreturn]] inline void fail_unsupported(std::string_view op, std::string_view sentence) {
  fail(ErrorCategory::Unsupported, op, sentence);
}

// Arithmetic on counts read from a file. A negative operand or an overflow throws
// Error{CorruptFile} that names `what`.
Index checked_add(Index a, Index b, std::string_view what);
Index checked_mul(Index a, Index b, std::string_view what);
// Converts a u64 read from a file to an Index. Values above 2^63-1 throw Error{CorruptFile}.
Index checked_index(std::uint64_t value, std::string_view what);

namespace detail {
void append(std::string& out, std::string_view part);
void append(std::string& out, long long part);
void append(std::string& out, unsigned long long part);
void append(std::string& out, double part);

template <class Part>
void append_any(std::string& out, const Part& part) {
  if constexpr (std::is_same_v<Part, char>) {
    out.push_back(part);
  } else if constexpr (std::is_same_v<Part, bool>) {
    append(out, part ? std::string_view("true") : std::string_view("false"));
  } else if constexpr (std::is_floating_point_v<Part>) {
    append(out, static_cast<double>(part));
  } else if constexpr (std::is_integral_v<Part> && std::is_signed_v<Part>) {
    append(out, static_cast<long long>(part));
  } else if constexpr (std::is_integral_v<Part>) {
    append(out, static_cast<unsigned long long>(part));
  } else {
    append(out, std::string_view(part));
  }
}
}  // namespace detail

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (detail::append_any(out, parts), ...);
  return out;
}

}  // namespace hone

// Checks an argument of a public function: Error{InvalidArgument} "[op] expected …, got …".
// `got` may be any expression that concat() takes; it is evaluated only on failure.
#define HONE_CHECK(condition, op, expected, got)                    \
  do {                                                              \
    if (!(condition)) [[unlikely]] {                                \
      ::hone::fail_argument((op), (expected), ::hone::concat(got)); \
    }                                                               \
  } while (false)

// Like HONE_CHECK for conditions that compare nothing: Error{InvalidArgument} "[op] <sentence>".
#define HONE_REQUIRE(condition, op, sentence)  \
  do {                                         \
    if (!(condition)) [[unlikely]] {           \
      ::hone::fail_argument((op), (sentence)); \
    }                                          \
  } while (false)
