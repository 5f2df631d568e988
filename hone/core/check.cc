// SPDX-License-Identifier: Apache-2.0
#include "hone/core/check.h"

#include <cstdio>
#include <limits>

#include "hone/core/names.h"

namespace hone {

void fail(ErrorCategory category, std::string_view op, std::string_view expected,
          std::string_view got) {
  fail(category, op, concat("expected ", expected, ", got ", got));
}

void fail(ErrorCategory category, std::string_view op, std::string_view sentence) {
  // One line, whatever is in the names and texts from files that come in here.
  throw Error(category, escape_controls(concat("[", op, "] ", sentence)));
}

Index checked_add(Index a, Index b, std::string_view what) {
  Index sum = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum)) {
    fail_corrupt(what, "a size below 2^63", concat(a, " + ", b));
  }
  return sum;
}

Index checked_mul(Index a, Index b, std::string_view what) {
  Index product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) {
    fail_corrupt(what, "a size below 2^63", concat(a, " x ", b));
  }
  return product;
}

Index checked_index(std::uint64_t value, std::string_view what) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<Index>::max())) {
    fail_corrupt(what, "a size below 2^63", concat(value));
  }
  return static_cast<Index>(value);
}

namespace detail {

void append(std::string& out, std::string_view part) { out.append(part); }
void append(std::string& out, long long part) { out.append(std::to_string(part)); }
void append(std::string& out, unsigned long long part) { out.append(std::to_string(part)); }
void append(std::string& out, double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", part);
  out.append(text);
}

}  // namespace detail
}  // namespace hone
