// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::infer::grammar {

// A decimal number, exactly: 0.<digits> * 10^point, negated if `negative`. The digits neither begin
// nor end with 0; zero has none and is not negative.
struct Decimal {
  bool negative = false;
  std::string digits{};
  std::int64_t point = 0;

  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return point >= static_cast<std::int64_t>(digits.size()); }
  friend bool operator==(const Decimal&, const Decimal&) = default;
};

// Parses a number of a JSON text. Throws Error{Unsupported} for an exponent beyond 10000 in
// magnitude.
Decimal parse_decimal(std::string_view number);

std::strong_ordering compare(const Decimal& a, const Decimal& b);

// The shortest plain spelling without exponent ("-0.25", "120"), or "<digit>.<digits>e<exponent>"
// where that would take more than 64 digits.
std::string spell(const Decimal& value);

// The value as an Index, if it is an integer of at most 2^31 - 1 in magnitude.
std::optional<Index> to_count(const Decimal& value);

// Generated numbers have at most this many digits before and after the point.
inline constexpr int kIntegerDigits = 32, kFractionDigits = 32;

// Numbers that satisfy a schema.
struct NumberRange {
  int fraction_digits = kFractionDigits;  // at most, after the point; 0: integers
  std::optional<Decimal> low{}, high{};
  bool low_exclusive = false, high_exclusive = false;

  bool contains(const Decimal& value) const;
  friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

// The numbers of a range that are multiples of a number above 0, if there are at most `most`;
// nullopt if there are more, or if the range has no bounds.
std::optional<std::vector<Decimal>> multiples(const NumberRange& range, const Decimal& of,
                                              std::size_t most);

NumberRange intersect(NumberRange a, const NumberRange& b);

// A bound of generated magnitudes: `whole` digits before the point without leading zeros (at least
// one), then all digits of the fraction.
struct MagnitudeBound {
  std::string digits{};
  int whole = 0;
  int significant = 0;  // number of digits up to the last one that is not 0
};

// The magnitudes of one sign, low … high, if there are any.
struct MagnitudeRange {
  bool possible = false;
  int fraction_digits = 0;
  MagnitudeBound low{}, high{};
};

// The magnitudes of the numbers in the range that can be spelled with at most kIntegerDigits digits
// before the point and range.fraction_digits after it. Zero has only the positive sign.
MagnitudeRange magnitudes(const NumberRange& range, bool negative);

}  // namespace hone::infer::grammar
