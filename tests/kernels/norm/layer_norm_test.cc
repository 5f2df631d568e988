// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/layer_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/error.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::random_values;

TEST(LayerNorm, four_numbers_by_hand) {
  const std::vector<float> x = {1, 2, 3, 6}, weight = {1, 2, 1, 5}, bias = {0, 1, -1, 0};
  std::vector<float> y(4);
  layer_norm({.x = x.data(),
              .x_stride = 4,
              .weight = weight.data(),
              .bias = bias.data(),
              .y = y.data(),
              .y_stride = 4,
              .rows = 1,
              .cols = 4,
              .epsilon = 1e-12f});
  const double deviation = std::sqrt((4.0 + 1 + 0 + 9) / 4);  // the mean is 3
  EXPECT_NEAR(y[0], -2 / deviation, 1e-6);
  EXPECT_NEAR(y[1], -2 / deviation + 1, 1e-6);
  EXPECT_NEAR(y[2], -1, 1e-6);
  EXPECT_NEAR(y[3], 15 / deviation, 1e-5);
}

TEST(LayerNorm, matches_reference_on_unaligned_rows_with_and_without_bias) {
  for (const Index cols : {1, 3, 15, 16, 17, 63, 64, 65, 127, 288, 2048, 4099}) {
    for (const bool biased : {true, false}) {
      const Index rows = 3, stride = cols + 3;
      const auto x = random_values(rows * stride + 1, 7), weight = random_values(cols + 1, 8);
      const auto bias = random_values(cols + 1, 9);
      std::vector<float> y(x.size(), 9.0f), expected(x.size(), 9.0f);
      LayerNormArgs args{.x = x.data() + 1,
                         .x_stride = stride,
                         .weight = weight.data() + 1,
                         .bias = biased ? bias.data() + 1 : nullptr,
                         .y = y.data() + 1,
                         .y_stride = stride,
                         .rows = rows,
                         .cols = cols};
      layer_norm(args);
      args.y = expected.data() + 1;
      layer_norm_ref(args);
      for (std::size_t i = 0; i < y.size(); ++i) {
        // Two sums of `cols` values over lanes, one square root, three products.
        const double tolerance = 8 * 1.2e-7 * std::sqrt(static_cast<double>(cols) + 1);
        ASSERT_NEAR(y[i], expected[i], tolerance * (std::abs(expected[i]) + 1))
            << "cols " << cols << " element " << i;
      }
    }
  }
}

TEST(LayerNorm, a_large_mean_does_not_cancel) {
  const Index cols = 1000;
  auto x = random_values(cols, 5);
  for (float& value : x) value += 4096;
  const std::vector<float> weight(static_cast<std::size_t>(cols), 1.0f);
  std::vector<float> y(x.size()), expected(x.size());
  LayerNormArgs args{.x = x.data(),
                     .x_stride = cols,
                     .weight = weight.data(),
                     .y = y.data(),
                     .y_stride = cols,
                     .rows = 1,
                     .cols = cols};
  layer_norm(args);
  args.y = expected.data();
  layer_norm_ref(args);
  // The mean in f32 is off by a few units of 4096 * 2^-24, the deviations are about 0.6.
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 5e-3);
}

TEST(LayerNorm, a_row_alone_equals_the_row_in_a_batch_and_in_place) {
  const Index rows = 5, cols = 173;
  const auto x = random_values(rows * cols, 3), weight = random_values(cols, 4);
  std::vector<float> batch(x.size()), in_place = x, alone(static_cast<std::size_t>(cols));
  LayerNormArgs args{.x = x.data(),
                     .x_stride = cols,
                     .weight = weight.data(),
                     .bias = weight.data(),
                     .y = batch.data(),
                     .y_stride = cols,
                     .rows = rows,
                     .cols = cols};
  layer_norm(args);
  args.x = args.y = in_place.data();
  layer_norm(args);
  EXPECT_EQ(batch, in_place);
  args.y = alone.data();
  args.rows = 1;
  for (Index row = 0; row < rows; ++row) {
    args.x = x.data() + row * cols;
    layer_norm(args);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), batch.begin() + row * cols)) << row;
  }
}

TEST(LayerNorm, refuses_bad_sizes) {
  LayerNormArgs args{.x_stride = 4, .y_stride = 4, .rows = 1, .cols = 5};
  EXPECT_THROW(layer_norm(args), Error);
  args = {.x_stride = 4, .y_stride = 4, .rows = -1, .cols = 4};
  EXPECT_THROW(layer_norm(args), Error);
  args = {.x_stride = 4, .y_stride = 4, .rows = 1, .cols = 4, .epsilon = 0};
  EXPECT_THROW(layer_norm(args), Error);
}

}  // namespace
}  // namespace hone::kernels
