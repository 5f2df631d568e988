// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/log_sum_exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;

TEST(LogSumExp, matches_reference_over_large_vocabularies) {
  for (const Index cols : {1, 7, 512, 4096, 4097, 32000, 128256}) {
    const auto x = test::random_values(cols, 11, 12);
    EXPECT_NEAR(log_sum_exp(x.data(), cols), log_sum_exp_ref(x.data(), cols), 1e-13) << cols;
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
