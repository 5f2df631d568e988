// SPDX-License-Identifier: Apache-2.0
#include "soft_threshold/soft_threshold.h"

#include <gtest/gtest.h>
#include <hone/core/error.h>
#include <hone/core/machine/cpu_info.h>
#include <hone/core/philox.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace example {
namespace {

class SoftThreshold : public testing::Test {
 protected:
  // HONE_FORCE_ISA picks the target; one that the machine lacks is a visible skip.
  void SetUp() override {
    try {
      hone::force_isa_from_environment();
    } catch (const hone::Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

std::vector<float> random_values(Index count) {
  hone::PhiloxStream random(3);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = 4 * random.uniform() - 2;
  return values;
}

TEST_F(SoftThreshold, shrinks_three_numbers_worked_by_hand) {
  const std::vector<float> x{3, -0.5f, -2};
  std::vector<float> y(3);
  soft_threshold({.x = x.data(), .y = y.data(), .count = 3, .threshold = 1});
  EXPECT_EQ(y, (std::vector<float>{2, -0.0f, -1}));
}

TEST_F(SoftThreshold, has_the_reference_s_bits_at_every_length_and_offset) {
  for (const Index count : {0, 1, 3, 8, 17, 64, 1009}) {
    for (Index offset = 0; offset < 3; ++offset) {
      const auto x = random_values(count + offset);
      std::vector<float> ours(x.size(), 7), theirs(x.size(), 7);
      soft_threshold(
          {.x = x.data() + offset, .y = ours.data() + offset, .count = count, .threshold = 0.75f});
      soft_threshold_ref({.x = x.data() + offset,
                          .y = theirs.data() + offset,
                          .count = count,
                          .threshold = 0.75f});
      EXPECT_EQ(0, std::memcmp(ours.data(), theirs.data(), 4 * ours.size())) << count;
    }
  }
}

TEST_F(SoftThreshold, works_in_place_and_keeps_nan) {
  auto x = random_values(37);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[6] = std::numeric_limits<float>::infinity();
  soft_threshold({.x = x.data(), .y = x.data(), .count = 37, .threshold = 0.5f});
  EXPECT_TRUE(std::isnan(x[5]));
  EXPECT_TRUE(std::isinf(x[6]));
}

TEST_F(SoftThreshold, refuses_a_negative_threshold) {
  float x = 1;
  EXPECT_THROW(soft_threshold({.x = &x, .y = &x, .count = 1, .threshold = -1}), hone::Error);
}

}  // namespace
}  // namespace example
