// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/number_progress.h"

#include <algorithm>

namespace hone::infer::grammar {
namespace {

// Takes the digit at `place` of the bound into a comparison that the digits before left open.
void compare_digit(const MagnitudeBound& bound, int place, std::uint8_t byte, std::int8_t& order) {
  if (order != 0 || place >= static_cast<int>(bound.digits.size())) return;
  const int wanted = bound.digits[static_cast<std::size_t>(place)];
  order = byte < wanted ? std::int8_t{-1} : byte > wanted ? std::int8_t{1} : std::int8_t{0};
}

// The comparison of a whole part of `digits` digits, of which the first ones compare as `order`.
int order_of(const MagnitudeBound& bound, int digits, std::int8_t order) {
  if (digits != bound.whole) return digits < bound.whole ? -1 : 1;
  return order;
}

// Whether numbers whose whole part has `digits` digits can be in the range.
bool may_have(const MagnitudeRange& range, const NumberProgress& progress, int digits) {
  return order_of(range.low, digits, progress.low) >= 0 &&
         order_of(range.high, digits, progress.high) <= 0;
}

}  // namespace

bool read_digit(const MagnitudeRange& range, std::uint8_t byte, NumberProgress& progress) {
  if (byte == '.') {
    if (progress.has_point || progress.whole == 0 || range.fraction_digits == 0) return false;
    progress.low = static_cast<std::int8_t>(order_of(range.low, progress.whole, progress.low));
    progress.high = static_cast<std::int8_t>(order_of(range.high, progress.whole, progress.high));
    progress.has_point = true;
    return progress.low >= 0 && progress.high <= 0;
  }
  if (byte < '0' || byte > '9') return false;
  if (progress.has_point) {
    if (progress.fraction >= range.fraction_digits) return false;
    compare_digit(range.low, range.low.whole + progress.fraction, byte, progress.low);
    compare_digit(range.high, range.high.whole + progress.fraction, byte, progress.high);
    ++progress.fraction;
    return progress.low >= 0 && progress.high <= 0;
  }
  if (progress.leading_zero || progress.whole >= kIntegerDigits) return false;
  progress.leading_zero = progress.whole == 0 && byte == '0';
  if (progress.whole < range.low.whole) {
    compare_digit(range.low, progress.whole, byte, progress.low);
  }
  if (progress.whole < range.high.whole) {
    compare_digit(range.high, progress.whole, byte, progress.high);
  }
  ++progress.whole;
  const int longest = progress.leading_zero ? progress.whole : kIntegerDigits;
  for (int digits = progress.whole; digits <= longest; ++digits) {
    if (may_have(range, progress, digits)) return true;
  }
  return false;
}

bool can_end(const MagnitudeRange& range, const NumberProgress& progress) {
  if (progress.whole == 0 || (progress.has_point && progress.fraction == 0)) return false;
  const bool whole_only = !progress.has_point;
  const int low = whole_only ? order_of(range.low, progress.whole, progress.low) : progress.low;
  const int high = whole_only ? order_of(range.high, progress.whole, progress.high) : progress.high;
  // Where the digits are the bound's own, the rest of them must be zeros.
  const bool reaches_low =
      low > 0 || (low == 0 && range.low.significant <= range.low.whole + progress.fraction);
  return reaches_low && high <= 0;
}

}  // namespace hone::infer::grammar
