// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/activation/soft_cap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/error.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

TEST(SoftCap, matches_reference_at_every_size) {
  for (const Index count : {0, 1, 7, 8, 9, 15, 16, 17, 33, 1000}) {
    for (const float cap : {0.5f, 3.0f, 30.0f, 50.0f}) {
      auto x = test::random_values(count, 4, 40);
      auto expected = x;
      soft_cap(x, cap);
      soft_cap_ref(expected, cap);
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(x[i], expected[i], 4e-6 * std::abs(expected[i])) << cap << " at " << i;
    }
  }
}

TEST(SoftCap, never_exceeds_the_cap_and_keeps_nan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(40, std::numeric_limits<float>::quiet_NaN());
  x[0] = kInfinity, x[1] = -kInfinity, x[2] = 1e30f, x[3] = 0.0f, x[39] = -1e30f;
  soft_cap(x, 30);
  EXPECT_EQ(x[0], 30);
  EXPECT_EQ(x[1], -30);
  EXPECT_EQ(x[2], 30);
  EXPECT_EQ(x[3], 0);
  EXPECT_EQ(x[39], -30);
  for (std::size_t i = 4; i < 39; ++i) EXPECT_TRUE(std::isnan(x[i])) << i;
}

TEST(SoftCap, refuses_a_cap_of_zero) {
  std::vector<float> x(3);
  EXPECT_THROW(soft_cap(x, 0), Error);
}

}  // namespace
}  // namespace hone::kernels
