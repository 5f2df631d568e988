// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/rms_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/error.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::random_values;

TEST(RmsNorm, three_numbers_by_hand) {
  const std::vector<float> x = {3, 4, 0}, weight = {1, 2, 5};
  std::vector<float> y(3);
  rms_norm({.x = x.data(),
            .x_stride = 3,
            .weight = weight.data(),
            .y = y.data(),
            .y_stride = 3,
            .rows = 1,
            .cols = 3,
            .epsilon = 1e-12f});
  const double rms = std::sqrt(25.0 / 3);
  EXPECT_NEAR(y[0], 3 / rms, 1e-6);
  EXPECT_NEAR(y[1], 8 / rms, 1e-6);
  EXPECT_EQ(y[2], 0);
}

TEST(RmsNorm, matches_reference_on_unaligned_rows) {
  for (const Index cols : {0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 288, 2048, 4099}) {
    const Index rows = 3, stride = cols + 3;
    const auto x = random_values(rows * stride + 1, 7), weight = random_values(cols + 1, 8);
    std::vector<float> y(x.size(), 9.0f), expected(x.size(), 9.0f);
    RmsNormArgs args{.x = x.data() + 1,
                     .x_stride = stride,
                     .weight = weight.data() + 1,
                     .y = y.data() + 1,
                     .y_stride = stride,
                     .rows = rows,
                     .cols = cols};
    rms_norm(args);
    args.y = expected.data() + 1;
    if (cols > 0) rms_norm_ref(args);
    for (std::size_t i = 0; i < y.size(); ++i) {
      // A sum of `cols` squares over lanes, one square root, two products.
      const double tolerance = 4 * 1.2e-7 * std::sqrt(static_cast<double>(cols) + 1);
      ASSERT_NEAR(y[i], expected[i], tolerance * (std::abs(expected[i]) + 1e-30))
          << "cols " << cols << " element " << i;
    }
  }
}

TEST(RmsNorm, a_row_alone_equals_the_row_in_a_batch_and_in_place) {
  const Index rows = 5, cols = 173;
  const auto x = random_values(rows * cols, 3), weight = random_values(cols, 4);
  std::vector<float> batch(x.size()), in_place = x, alone(static_cast<std::size_t>(cols));
  RmsNormArgs args{.x = x.data(),
                   .x_stride = cols,
                   .weight = weight.data(),
                   .y = batch.data(),
                   .y_stride = cols,
                   .rows = rows,
                   .cols = cols};
  rms_norm(args);
  args.x = args.y = in_place.data();
  rms_norm(args);
  EXPECT_EQ(batch, in_place);
  args.y = alone.data();
  args.rows = 1;
  for (Index row = 0; row < rows; ++row) {
    args.x = x.data() + row * cols;
    rms_norm(args);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), batch.begin() + row * cols)) << row;
  }
}

TEST(RmsNorm, refuses_overlapping_rows_and_a_zero_epsilon) {
  float x[4] = {}, weight[4] = {};
  RmsNormArgs args{
      .x = x, .x_stride = 3, .weight = weight, .y = x, .y_stride = 4, .rows = 1, .cols = 4};
  EXPECT_THROW(rms_norm(args), Error);
  args.x_stride = 4;
  args.epsilon = 0;
  EXPECT_THROW(rms_norm(args), Error);
}

}  // namespace
}  // namespace hone::kernels
