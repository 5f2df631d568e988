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

// Throws Error{category} with the message "[op] wanted <wanted>, got <got>".
[[noreturn]] void fail(ErrorCategory category, std::string_view op, std::string_view wanted,
                       std::string_view got);

[[noreturn]] inline void fail_argument(std::string_view op, std::string_view wanted,
                                       std::string_view got) {
  fail(ErrorCategory::InvalidArgument, op, wanted, got);
}
[[noreturn]] inline void fail_corrupt(std::string_view file, std::string_view wanted,
                                      std::string_view got) {
  fail(ErrorCategory::CorruptFile, file, wanted, got);
}
[[noreturn]] inline void fail_unsupported(std::string_view op, std::string_view wanted,
                                          std::string_view got) {
  fail(ErrorCategory::Unsupported, op, wanted, got);
}

// Arithmetic on counts that come from a file: Error{CorruptFile} naming `what` on a negative
// operand or an overflow.
Index checked_add(Index a, Index b, std::string_view what);
Index checked_mul(Index a, Index b, std::string_view what);
// A u64 from a file as an Index; values above 2^63-1 are corrupt.
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

// Argument check of a public function: Error{InvalidArgument} "[op] wanted …, got …".
// `got` may be any expression that concat() takes; it is evaluated only on failure.
#define HONE_CHECK(condition, op, wanted, got)                    \
  do {                                                            \
    if (!(condition)) [[unlikely]] {                              \
      ::hone::fail_argument((op), (wanted), ::hone::concat(got)); \
    }                                                             \
  } while (false)
