// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/dtype.h"
#include "hone/core/shape.h"
#include "hone/core/tensor_view.h"

namespace hone {
namespace {

// The definition of a 16-bit float with 5 exponent bits, in double.
double f16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Float16, every_finite_value_converts_exactly_and_back) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7c00) == 0x7c00) continue;
    ASSERT_EQ(static_cast<double>(f16_to_float(half)), f16_value(half)) << bits;
    ASSERT_EQ(float_to_f16(f16_to_float(half)), half);
  }
}

TEST(Float16, narrowing_rounds_to_nearest_ties_to_even) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    const auto middle = static_cast<float>((f16_value(low) + f16_value(high)) / 2);
    ASSERT_EQ(float_to_f16(middle), (low & 1) == 0 ? low : high) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 1e9f)), high);
  }
  EXPECT_EQ(float_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::nanf("")))));
}

TEST(BFloat16, narrowing_rounds_to_nearest_ties_to_even) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    ASSERT_EQ(float_to_bf16(bf16_to_float(static_cast<std::uint16_t>(bits))), bits);
  }
}

TEST(Check, concat_prints_each_kind) {
  EXPECT_EQ(concat("a", 'b', -3, 7u, 2.5, true, std::string("z")), "ab-372.5truez");
}

TEST(Check, message_names_operation_and_both_sides) {
  try {
    HONE_CHECK(1 > 2, "rms_norm", "2 rows", concat(1, " row"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[rms_norm] expected 2 rows, got 1 row");
    EXPECT_EQ(exit_status(error.category()), 2);
  }
}

TEST(Check, message_without_a_comparison_is_the_sentence_and_stays_on_one_line) {
  HONE_REQUIRE(1 < 2, "compress", "This holds.");
  try {
    HONE_REQUIRE(1 > 2, "compress", concat("Tensor ", "a\nb\x7f", " occurs twice."));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[compress] Tensor a\\x0ab\\x7f occurs twice.");
    EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
  }
  EXPECT_THROW(fail_corrupt("a.gguf", "A key has an empty name."), Error);
}

TEST(Check, checked_arithmetic_refuses_overflow_and_negative_counts) {
  constexpr Index kMax = std::numeric_limits<Index>::max();
  EXPECT_EQ(checked_add(2, 3, "x"), 5);
  EXPECT_EQ(checked_mul(kMax, 1, "x"), kMax);
  EXPECT_THROW(checked_add(kMax, 1, "x"), Error);
  EXPECT_THROW(checked_mul(Index{1} << 32, Index{1} << 31, "x"), Error);
  EXPECT_THROW(checked_mul(-1, 1, "x"), Error);
  EXPECT_THROW(checked_index(std::uint64_t{1} << 63, "x"), Error);
}

TEST(Error, every_category_has_the_documented_exit_status) {
  EXPECT_EQ(exit_status(ErrorCategory::InvalidArgument), 2);
  EXPECT_EQ(exit_status(ErrorCategory::NotFound), 3);
  EXPECT_EQ(exit_status(ErrorCategory::CorruptFile), 3);
  EXPECT_EQ(exit_status(ErrorCategory::Unsupported), 4);
  EXPECT_EQ(exit_status(ErrorCategory::Io), 1);
  EXPECT_EQ(exit_status(ErrorCategory::Resource), 1);
  EXPECT_EQ(exit_status(ErrorCategory::Device), 1);
  EXPECT_EQ(exit_status(ErrorCategory::Cancelled), 130);
  EXPECT_EQ(exit_status(ErrorCategory::Internal), 1);
}

TEST(Shape, strides_and_elements_are_row_major) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(shape.contiguous_strides(), (Shape{12, 4, 1}));
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{5, 0}).elements(), 0);
  EXPECT_EQ(to_text(shape), "[2, 3, 4]");
  const std::vector<Index> nine(9, 1);
  EXPECT_THROW(Shape{std::span<const Index>(nine)}, Error);
}

TEST(TensorView, knows_whether_it_is_contiguous) {
  float data[6] = {};
  EXPECT_TRUE(TensorView(data, Dtype::Float32, {2, 3}).is_contiguous());
  EXPECT_FALSE(TensorView(data, Dtype::Float32, {3, 2}, {1, 3}).is_contiguous());
  const ConstTensorView read_only = TensorView(data, Dtype::Float32, {2, 3});
  EXPECT_EQ(read_only.bytes(), 24);
}

}  // namespace
}  // namespace hone
