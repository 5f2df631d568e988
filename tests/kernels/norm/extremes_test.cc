// SPDX-License-Identifier: Apache-2.0
// rms_norm and log_sum_exp where careless arithmetic overflows, cancels or divides by zero. The
// oracle of rms_norm sums in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hone/kernels/norm/log_sum_exp.h"
#include "hone/kernels/norm/rms_norm.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::random_values;

constexpr Index kCols[] = {1, 2, 7, 8, 15, 16, 17, 31, 64, 100, 1000};

std::vector<float> normalized(const std::vector<float>& x, float epsilon = 1e-5f) {
  std::vector<float> y(x.size(), -1.0f);
  const std::vector<float> ones(x.size(), 1.0f);
  const auto cols = static_cast<Index>(x.size());
  rms_norm({.x = x.data(),
            .x_stride = cols,
            .weight = ones.data(),
            .y = y.data(),
            .y_stride = cols,
            .rows = 1,
            .cols = cols,
            .epsilon = epsilon});
  return y;
}

TEST(LogSumExpExtremes, equal_logits_give_their_height_plus_the_logarithm_of_the_count) {
  for (const float height : {0.0f, 1e-30f, 700.0f, -700.0f, 1e6f}) {
    for (const Index cols : {1, 2, 511, 512, 513, 100'000}) {
      const std::vector<float> x(static_cast<std::size_t>(cols), height);
      EXPECT_NEAR(log_sum_exp(x.data(), cols), height + std::log(static_cast<double>(cols)), 1e-6);
    }
  }
}

TEST(LogSumExpExtremes, masked_entries_do_not_count_and_plus_infinity_wins) {
  std::vector<float> x(1000, -kInfinity);
  x[3] = x[700] = 2;
  EXPECT_NEAR(log_sum_exp(x.data(), 1000), 2 + std::log(2.0), 1e-6);
  x[999] = kInfinity;
  EXPECT_EQ(log_sum_exp(x.data(), 1000), kInfinity);
}

TEST(RmsNormExtremes, equal_values_become_their_sign) {
  for (const float height : {1.0f, -1.0f, 1e-3f, 1e15f, -1e15f}) {
    for (const Index cols : kCols) {
      const std::vector<float> x(static_cast<std::size_t>(cols), height);
      for (const float y : normalized(x, 1e-20f)) ASSERT_NEAR(y, height > 0 ? 1 : -1, 1e-5);
    }
  }
}

TEST(RmsNormExtremes, matches_long_double_over_thirty_orders_of_magnitude) {
  for (const float size : {1e-30f, 1e-18f, 1e-9f, 1e-4f, 1.0f, 1e9f, 1e17f}) {
    for (const Index cols : kCols) {
      const auto x = random_values(cols, 7, size);
      const auto y = normalized(x, 1e-12f);
      long double sum = 0;
      for (const float value : x) sum += static_cast<long double>(value) * value;
      const long double scale =
          1 / std::sqrt(sum / static_cast<long double>(cols) + static_cast<long double>(1e-12f));
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto expected = static_cast<double>(x[i] * scale);
        // A sum over lanes, a division, a root, a reciprocal and a product.
        ASSERT_NEAR(y[i], expected, 8e-7 * std::abs(expected) + 1e-38) << size << " " << cols;
      }
    }
  }
}

TEST(RmsNormExtremes, zeros_and_subnormals_are_scaled_by_the_root_of_epsilon) {
  for (const Index cols : kCols) {
    for (const float y : normalized(std::vector<float>(static_cast<std::size_t>(cols), 0.0f)))
      ASSERT_EQ(y, 0.0f);
    const std::vector<float> tiny(static_cast<std::size_t>(cols), 3e-39f);
    for (const float y : normalized(tiny, 1e-4f)) ASSERT_NEAR(y, 3e-37, 3e-42);
  }
}

TEST(RmsNormExtremes, scaling_a_row_by_a_power_of_two_keeps_its_bits) {
  for (const Index cols : kCols) {
    auto x = random_values(cols, 7, 1);
    const auto base = normalized(x, 1e-37f);
    for (float& value : x) value *= 1024;
    EXPECT_EQ(normalized(x, 1e-37f), base);
  }
}

TEST(RmsNormExtremes, overwriting_rows_gives_the_bits_of_a_separate_output) {
  const Index rows = 4, cols = 75, stride = 80;
  auto x = random_values(rows * stride, 7, 3);
  const auto weight = random_values(cols, 7, 2);
  std::vector<float> y = x;
  RmsNormArgs args{.x = x.data(),
                   .x_stride = stride,
                   .weight = weight.data(),
                   .y = y.data(),
                   .y_stride = stride,
                   .rows = rows,
                   .cols = cols};
  rms_norm(args);
  args.y = x.data();
  rms_norm(args);
  EXPECT_EQ(x, y);  // gaps between rows included
}

TEST(RmsNormExtremes, a_value_that_is_not_finite_stays_in_its_row) {
  const std::vector<float> weight(24, 1.0f);
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(3 * 24, 1.0f);
    x[24 + 5] = bad;
    rms_norm({.x = x.data(),
              .x_stride = 24,
              .weight = weight.data(),
              .y = x.data(),
              .y_stride = 24,
              .rows = 3,
              .cols = 24});
    EXPECT_TRUE(std::isnan(x[24 + 5]));
    for (std::size_t i = 0; i < 24; ++i) {
      EXPECT_NEAR(x[i], 1, 1e-5);
      EXPECT_NEAR(x[48 + i], 1, 1e-5);
    }
  }
}

}  // namespace
}  // namespace hone::kernels
