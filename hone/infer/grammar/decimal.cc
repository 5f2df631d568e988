// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/decimal.h"

#include <algorithm>
#include <charconv>

#include "hone/core/check.h"

namespace hone::infer::grammar {
namespace {

constexpr std::int64_t kMaxExponent = 10'000, kPlainDigits = 64;

// Adds one unit in the last place; false if that overflows the width.
bool increment(std::string& digits) {
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    if (*digit != '9') {
      ++*digit;
      return true;
    }
    *digit = '0';
  }
  return false;
}

// Subtracts one unit in the last place from a number above 0.
void decrement(std::string& digits) {
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    if (*digit != '0') {
      --*digit;
      return;
    }
    *digit = '9';
  }
}

// A magnitude with kIntegerDigits and `fraction` digits.
struct FixedPoint {
  std::string digits;
  bool exact = false;  // nothing was cut off
  bool too_large = false;
};

FixedPoint fix(const Decimal& value, int fraction) {
  FixedPoint fixed;
  fixed.digits.assign(static_cast<std::size_t>(kIntegerDigits + fraction), '0');
  fixed.too_large = value.point > kIntegerDigits;
  if (fixed.too_large) return fixed;
  std::int64_t kept = 0;
  for (const char digit : value.digits) {
    const std::int64_t place = kIntegerDigits - value.point + kept;
    if (place >= static_cast<std::int64_t>(fixed.digits.size())) break;
    fixed.digits[static_cast<std::size_t>(place)] = digit;
    ++kept;
  }
  fixed.exact = kept == static_cast<std::int64_t>(value.digits.size());
  return fixed;
}

// The smallest spelled magnitude that is not below (or, if exclusive, above) |value|.
std::optional<std::string> round_up(const Decimal& value, bool exclusive, int fraction) {
  FixedPoint fixed = fix(value, fraction);
  if (fixed.too_large) return std::nullopt;
  if ((exclusive || !fixed.exact) && !increment(fixed.digits)) return std::nullopt;
  return fixed.digits;
}

// The largest spelled magnitude that is not above (or, if exclusive, below) |value|.
std::optional<std::string> round_down(const Decimal& value, bool exclusive, int fraction) {
  FixedPoint fixed = fix(value, fraction);
  if (fixed.too_large) return std::string(fixed.digits.size(), '9');
  if (exclusive && fixed.exact) {
    if (value.is_zero()) return std::nullopt;
    decrement(fixed.digits);
  }
  return fixed.digits;
}

MagnitudeBound make_bound(const std::string& digits) {
  const auto first = std::min<std::size_t>(digits.find_first_not_of('0'), kIntegerDigits - 1);
  MagnitudeBound bound{.digits = digits.substr(first)};
  bound.whole = kIntegerDigits - static_cast<int>(first);
  bound.significant = static_cast<int>(bound.digits.find_last_not_of('0') + 1);
  return bound;
}

}  // namespace

Decimal parse_decimal(std::string_view number) {
  Decimal result;
  result.negative = number.starts_with('-');
  if (result.negative) number.remove_prefix(1);
  const std::size_t mark = std::min(number.find_first_of("eE"), number.size());
  std::string_view exponent_text = number.substr(std::min(mark + 1, number.size()));
  if (exponent_text.starts_with('+')) exponent_text.remove_prefix(1);
  std::int64_t exponent = 0;
  if (!exponent_text.empty()) {
    const auto [end, error] = std::from_chars(
        exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
    if (error != std::errc() || exponent > kMaxExponent || exponent < -kMaxExponent) {
      fail_unsupported("JSON schema", "an exponent of at most 10000 in magnitude", exponent_text);
    }
  }
  const std::string_view mantissa = number.substr(0, mark);
  const std::size_t dot = std::min(mantissa.find('.'), mantissa.size());
  for (const char c : mantissa) {
    if (c != '.') result.digits += c;
  }
  result.point = static_cast<std::int64_t>(dot) + exponent;
  const std::size_t leading = std::min(result.digits.find_first_not_of('0'), result.digits.size());
  result.digits.erase(0, leading);
  result.point -= static_cast<std::int64_t>(leading);
  result.digits.erase(result.digits.find_last_not_of('0') + 1);
  if (result.digits.empty()) return {};
  return result;
}

std::strong_ordering compare(const Decimal& a, const Decimal& b) {
  const auto sign = [](const Decimal& v) { return v.is_zero() ? 0 : v.negative ? -1 : 1; };
  if (sign(a) != sign(b)) return sign(a) <=> sign(b);
  const auto magnitude = a.point != b.point ? a.point <=> b.point : a.digits <=> b.digits;
  return a.negative ? 0 <=> magnitude : magnitude;
}

std::string spell(const Decimal& value) {
  if (value.is_zero()) return "0";
  std::string text = value.negative ? "-" : "";
  const auto size = static_cast<std::int64_t>(value.digits.size());
  if (value.point > kPlainDigits || size - std::min<std::int64_t>(value.point, 0) > kPlainDigits) {
    text += value.digits.substr(0, 1);
    if (size > 1) text += concat(".", value.digits.substr(1));
    return text + concat("e", value.point - 1);
  }
  if (value.point <= 0) {
    return text + "0." + std::string(static_cast<std::size_t>(-value.point), '0') + value.digits;
  }
  if (value.is_integer()) {
    return text + value.digits + std::string(static_cast<std::size_t>(value.point - size), '0');
  }
  const auto whole = static_cast<std::size_t>(value.point);
  return text + value.digits.substr(0, whole) + "." + value.digits.substr(whole);
}

std::optional<Index> to_count(const Decimal& value) {
  if (!value.is_integer() || value.point > 10) return std::nullopt;
  Index count = 0;
  for (std::int64_t i = 0; i < value.point; ++i) {
    const auto place = static_cast<std::size_t>(i);
    count = 10 * count + (place < value.digits.size() ? value.digits[place] - '0' : 0);
  }
  if (count > 0x7fffffff) return std::nullopt;
  return value.negative ? -count : count;
}

bool NumberRange::contains(const Decimal& value) const {
  const std::int64_t digits = static_cast<std::int64_t>(value.digits.size()) - value.point;
  if (fraction_digits < kFractionDigits && digits > fraction_digits) return false;
  if (low) {
    const auto order = compare(value, *low);
    if (order < 0 || (order == 0 && low_exclusive)) return false;
  }
  if (high) {
    const auto order = compare(value, *high);
    if (order > 0 || (order == 0 && high_exclusive)) return false;
  }
  return true;
}

std::optional<std::vector<Decimal>> multiples(const NumberRange& range, const Decimal& of,
                                              std::size_t most) {
  if (!range.low || !range.high) return std::nullopt;
  // All in units of 10^-scale.
  const auto scale_of = [](const Decimal& value) {
    return static_cast<std::int64_t>(value.digits.size()) - value.point;
  };
  const std::int64_t scale =
      std::max({std::int64_t{0}, scale_of(of), scale_of(*range.low), scale_of(*range.high)});
  const auto scaled = [scale](const Decimal& value) -> std::optional<std::int64_t> {
    constexpr std::int64_t kMostDigits = 17;
    if (value.point + scale > kMostDigits) return std::nullopt;
    std::int64_t out = 0;
    for (std::int64_t i = 0; i < value.point + scale; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out = out * 10 + (at < value.digits.size() ? value.digits[at] - '0' : 0);
    }
    return value.negative ? -out : out;
  };
  const auto low = scaled(*range.low), high = scaled(*range.high), step = scaled(of);
  if (!low || !high || !step || *step <= 0) return std::nullopt;
  std::vector<Decimal> out;
  std::int64_t value = *low / *step * *step;
  if (value < *low) value += *step;
  for (std::size_t tried = 0; value <= *high; value += *step, ++tried) {
    if (tried > 100 * most) return std::nullopt;
    const Decimal number = parse_decimal(concat(value, "e", -scale));
    if (!range.contains(number)) continue;
    if (out.size() == most) return std::nullopt;
    out.push_back(number);
  }
  return out;
}

NumberRange intersect(NumberRange a, const NumberRange& b) {
  a.fraction_digits = std::min(a.fraction_digits, b.fraction_digits);
  if (b.low) {
    const auto order = a.low ? compare(*b.low, *a.low) : std::strong_ordering::greater;
    a.low_exclusive = order > 0   ? b.low_exclusive
                      : order < 0 ? a.low_exclusive
                                  : a.low_exclusive || b.low_exclusive;
    if (order > 0) a.low = b.low;
  }
  if (b.high) {
    const auto order = a.high ? compare(*b.high, *a.high) : std::strong_ordering::less;
    a.high_exclusive = order < 0   ? b.high_exclusive
                       : order > 0 ? a.high_exclusive
                                   : a.high_exclusive || b.high_exclusive;
    if (order < 0) a.high = b.high;
  }
  return a;
}

MagnitudeRange magnitudes(const NumberRange& range, bool negative) {
  MagnitudeRange result;
  result.fraction_digits = range.fraction_digits;
  // A negative number's magnitude has the bounds in exchanged roles.
  const auto& near = negative ? range.high : range.low;
  const auto& far = negative ? range.low : range.high;
  const bool near_exclusive = negative ? range.high_exclusive : range.low_exclusive;
  const bool far_exclusive = negative ? range.low_exclusive : range.high_exclusive;
  const auto is_beyond_zero = [negative](const Decimal& bound) {
    return !bound.is_zero() && bound.negative == negative;
  };
  const Decimal zero;
  std::optional<std::string> low = round_up(zero, negative, result.fraction_digits);
  if (near && is_beyond_zero(*near)) low = round_up(*near, near_exclusive, result.fraction_digits);
  if (near && near->is_zero()) {
    low = round_up(zero, negative || near_exclusive, result.fraction_digits);
  }
  std::optional<std::string> high(
      std::string(static_cast<std::size_t>(kIntegerDigits + result.fraction_digits), '9'));
  if (far && (is_beyond_zero(*far) || far->is_zero())) {
    high = round_down(*far, far_exclusive, result.fraction_digits);
  } else if (far) {
    high.reset();
  }
  result.possible = low && high && *low <= *high;
  if (!result.possible) return result;
  result.low = make_bound(*low);
  result.high = make_bound(*high);
  return result;
}

}  // namespace hone::infer::grammar
