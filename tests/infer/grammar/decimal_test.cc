// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/decimal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "tests/infer/grammar/grammar_support.h"

namespace hone::infer::grammar {
namespace {

TEST(Decimal, spellings_of_the_same_value_are_equal) {
  for (const char* text : {"120", "120.0", "1.2e2", "12E+1", "1200e-1", "0.00120e5"}) {
    EXPECT_EQ(parse_decimal(text), parse_decimal("120")) << text;
    EXPECT_EQ(spell(parse_decimal(text)), "120");
  }
  for (const char* text : {"0", "-0", "0.000", "-0e9", "0e-9"}) {
    EXPECT_EQ(spell(parse_decimal(text)), "0") << text;
  }
  EXPECT_EQ(spell(parse_decimal("-0.0250")), "-0.025");
  EXPECT_EQ(spell(parse_decimal("1234.5")), "1234.5");
  EXPECT_EQ(spell(parse_decimal("-1.25e300")), "-1.25e300");
  EXPECT_EQ(spell(parse_decimal("7e-300")), "7e-300");
  EXPECT_THROW(parse_decimal("1e10001"), Error);
  EXPECT_THROW(parse_decimal("1e99999999999999999999"), Error);
}

TEST(Decimal, order_is_that_of_the_numbers) {
  PhiloxStream random(2);
  for (int i = 0; i < 20000; ++i) {
    const auto pick = [&] {
      const int value = static_cast<int>(random.below(4001)) - 2000;
      return std::pair(value, concat(value, "e-", 2));
    };
    const auto [a, a_text] = pick();
    const auto [b, b_text] = pick();
    EXPECT_EQ(compare(parse_decimal(a_text), parse_decimal(b_text)), a <=> b);
  }
}

TEST(Decimal, counts_are_integers_that_fit) {
  EXPECT_EQ(to_count(parse_decimal("2e3")), 2000);
  EXPECT_EQ(to_count(parse_decimal("2147483647")), 2147483647);
  EXPECT_EQ(to_count(parse_decimal("2147483648")), std::nullopt);
  EXPECT_EQ(to_count(parse_decimal("1e400")), std::nullopt);
  EXPECT_EQ(to_count(parse_decimal("1.5")), std::nullopt);
}

// All numbers of up to 4 digits, at most 2 of them after the point, against random bounds in
// hundredths.
TEST(NumberRange, the_automaton_accepts_exactly_the_numbers_in_the_range) {
  PhiloxStream random(3);
  for (int round = 0; round < 150; ++round) {
    const int low = static_cast<int>(random.below(3000)) - 1500;
    const int high = low + static_cast<int>(random.below(2000));
    const bool low_open = random.below(2) == 0, high_open = random.below(2) == 0;
    const bool integer = random.below(3) == 0;
    const std::string schema =
        concat("{\"type\":\"", integer ? "integer" : "number", "\",\"",
               low_open ? "exclusiveMinimum" : "minimum", "\":", low, "e-2,\"",
               high_open ? "exclusiveMaximum" : "maximum", "\":", high, "e-2}");
    std::shared_ptr<const JsonSchema> compiled;
    try {
      compiled = JsonSchema::compile(schema);
    } catch (const Error&) {  // no value: the loop below must find none either
    }
    for (int value = -2100; value <= 2100; ++value) {
      const bool above = low_open ? value > low : value >= low;
      const bool below = high_open ? value < high : value <= high;
      const int whole = std::abs(value) / 100, cents = std::abs(value) % 100;
      const std::string sign = value < 0 ? "-" : "";
      const std::string plain = concat(sign, whole, ".", cents / 10, cents % 10);
      const bool expected = above && below && (!integer || cents == 0);
      if (compiled == nullptr) {
        ASSERT_FALSE(expected) << schema << " " << plain;
        continue;
      }
      ASSERT_EQ(test::accepts(compiled, plain), expected && !integer) << schema << " " << plain;
      if (cents == 0) {
        ASSERT_EQ(test::accepts(compiled, concat(sign, whole)), expected) << schema << value;
      }
      if (cents % 10 == 0) {
        const std::string tenths = concat(sign, whole, ".", cents / 10);
        ASSERT_EQ(test::accepts(compiled, tenths), expected && !integer) << schema << tenths;
      }
    }
  }
}

}  // namespace
}  // namespace hone::infer::grammar
