// SPDX-License-Identifier: Apache-2.0
// What rms_norm and log_sum_exp refuse, and that they touch nothing beyond their rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/kernels/norm/log_sum_exp.h"
#include "hone/kernels/norm/rms_norm.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::kNan;
using test::random_values;
using testing::HasSubstr;
using Values = std::vector<float>;

TEST(RmsNormRefuses, every_wrong_argument_by_name) {
  Values x(16, 2.0f);
  const Values weight(8, 1.0f);
  const auto spoilt = [&](const auto& spoil) {
    RmsNormArgs args{.x = x.data(),
                     .x_stride = 8,
                     .weight = weight.data(),
                     .y = x.data(),
                     .y_stride = 8,
                     .rows = 2,
                     .cols = 8};
    spoil(args);
    return error_of([&] { rms_norm(args); });
  };
  EXPECT_THAT(spoilt([](auto& a) { a.rows = -2; }),
              HasSubstr("[rms_norm] expected sizes >= 0, got [-2, 8]"));
  EXPECT_THAT(spoilt([](auto& a) { a.cols = -8; }), HasSubstr("got [2, -8]"));
  EXPECT_THAT(spoilt([](auto& a) { a.x_stride = 7; }),
              HasSubstr("strides of at least 8 columns, got 7 and 8"));
  EXPECT_THAT(spoilt([](auto& a) { a.y_stride = 7; }), HasSubstr("got 8 and 7"));
  for (const float epsilon : {0.0f, -1e-5f, kNan})
    EXPECT_THAT(spoilt([&](auto& a) { a.epsilon = epsilon; }), HasSubstr("expected epsilon > 0"));
  EXPECT_EQ(spoilt([](auto& a) { a.rows = 0; }), "no error");
  EXPECT_EQ(spoilt([](auto& a) { a.cols = 0; }), "no error");
  EXPECT_EQ(x, Values(16, 2.0f));
}

TEST(LogSumExpRefuses, negative_columns) {
  const float x = 0;
  EXPECT_THAT(error_of([&] { log_sum_exp(&x, -1); }),
              HasSubstr("[log_sum_exp] expected cols >= 0, got -1"));
}

TEST(NormEdges, read_and_write_up_to_the_page_and_no_further) {
  for (const Index cols : {1, 3, 16, 17, 33, 100}) {
    const test::GuardedFloats x(random_values(2 * cols, 1)), weight(random_values(cols, 2));
    const test::GuardedFloats y(Values(static_cast<std::size_t>(2 * cols), kNan));
    rms_norm({.x = x.data(),
              .x_stride = cols,
              .weight = weight.data(),
              .y = y.data(),
              .y_stride = cols,
              .rows = 2,
              .cols = cols});
    EXPECT_FALSE(std::isnan(y.data()[2 * cols - 1])) << cols;
    EXPECT_TRUE(std::isfinite(log_sum_exp(x.data() + cols, cols)));
  }
}

}  // namespace
}  // namespace hone::kernels
