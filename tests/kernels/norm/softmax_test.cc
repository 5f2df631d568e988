// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;

TEST(Softmax, matches_reference_and_sums_to_one) {
  for (const Index cols : {1, 2, 15, 16, 17, 33, 1000, 4099}) {
    auto x = test::random_values(2 * cols, 11, 30);
    x[0] = -kInfinity;
    std::vector<float> y(x.size()), expected(x.size());
    softmax({.x = x.data(), .y = y.data(), .stride = cols, .rows = 2, .cols = cols});
    softmax_ref({.x = x.data(), .y = expected.data(), .stride = cols, .rows = 2, .cols = cols});
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      // x - max reaches 60: its rounding, 60 * eps / 2, is the relative error of the exponential.
      ASSERT_NEAR(y[i], expected[i], 64 * 1.2e-7 * expected[i] + 1e-36)
          << "cols " << cols << " at " << i;
      sum += y[i];
    }
    EXPECT_EQ(y[0], 0);
    EXPECT_NEAR(sum, cols == 1 ? 1 : 2, 1e-5);
  }
}

TEST(Softmax, a_row_of_minus_infinity_becomes_zeros) {
  std::vector<float> x(19, -kInfinity);
  softmax({.x = x.data(), .y = x.data(), .stride = 19, .rows = 1, .cols = 19});
  for (const float p : x) EXPECT_EQ(p, 0);
}

TEST(LogSumExp, matches_reference_over_large_vocabularies) {
  for (const Index cols : {1, 7, 512, 4096, 4097, 32000, 128256}) {
    const auto x = test::random_values(cols, 11, 12);
    // x - max reaches 24: relative error 24 * eps of each exponential at most.
    EXPECT_NEAR(log_sum_exp(x.data(), cols), log_sum_exp_ref(x.data(), cols), 24 * 1.2e-7) << cols;
  }
}

TEST(LogSumExp, passes_infinities_and_nan_through) {
  const std::vector<float> none(5, -kInfinity);
  EXPECT_EQ(log_sum_exp(none.data(), 5), -kInfinity);
  EXPECT_EQ(log_sum_exp(none.data(), 0), -kInfinity);
  for (const std::size_t at : {std::size_t{0}, std::size_t{39}}) {
    std::vector<float> x(40, 1.0f);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(log_sum_exp(x.data(), 40)));
  }
}

}  // namespace
}  // namespace hone::kernels
