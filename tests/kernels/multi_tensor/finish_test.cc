// SPDX-License-Identifier: Apache-2.0
// Scaling and averaging at every length and alignment, against fp64 and the page's end.
#include "hone/kernels/multi_tensor/schedule/element_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::GuardedFloats;
using test::kEpsilon;
using test::kInfinity;
using test::kNan;
using test::random_values;

constexpr float kCanary = 12345.0f;

std::vector<Index> lengths() {
  std::vector<Index> all;
  for (Index n = 0; n <= 70; ++n) all.push_back(n);
  for (const Index n : {255, 1000, 16'383}) all.push_back(n);
  return all;
}

// `values` behind `misalign` canaries, and canaries behind them.
std::vector<float> between_canaries(const std::vector<float>& values, Index misalign) {
  std::vector<float> all(static_cast<std::size_t>(misalign), kCanary);
  all.insert(all.end(), values.begin(), values.end());
  all.insert(all.end(), 20, kCanary);
  return all;
}

void expect_canaries(const std::vector<float>& all, Index misalign, Index n) {
  for (Index i = 0; i < static_cast<Index>(all.size()); ++i) {
    if (i >= misalign && i < misalign + n) continue;
    ASSERT_EQ(all[static_cast<std::size_t>(i)], kCanary) << i << " of " << n;
  }
}

// What follows a rule, in place.
class Finish {
 public:
  explicit Finish(const ElementPass& pass) : pass_(pass) {}

  void scale(float* values, Index n, float factor) const {
    pass_.scale({.out = values, .x = values, .length = n}, factor);
  }
  void limit(float* values, Index n, float limit) const {
    pass_.clamp({.out = values, .x = values, .length = n}, -limit, limit);
  }
  void average(const float* values, Index n, float share, float* average) const {
    pass_.average({.out = average, .x = values, .y = average, .length = n}, share);
  }

 private:
  ElementPass pass_;
};

TEST(FinishScale, is_one_rounded_product_per_element_and_touches_no_other) {
  const Finish finish(choose_element_pass());
  for (const Index n : lengths()) {
    for (const Index misalign : {0, 1, 3, 7}) {
      const auto values = random_values(n, 1, 1e4f);
      for (const float factor : {0.3f, -1.0f, 0x1p-100f, 0.0f, 3e38f}) {
        auto scaled = between_canaries(values, misalign);
        finish.scale(scaled.data() + misalign, n, factor);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto want = static_cast<float>(double{values[i]} * factor);
          ASSERT_EQ(scaled[static_cast<std::size_t>(misalign) + i], want) << n << " at " << i;
        }
        expect_canaries(scaled, misalign, n);
      }
    }
  }
}

TEST(FinishLimit, holds_values_within_the_limit_and_touches_no_other) {
  const Finish finish(choose_element_pass());
  for (const Index n : lengths()) {
    for (const Index misalign : {0, 1, 3, 7}) {
      auto values = random_values(n, 1);
      if (n > 2) values[0] = -kInfinity, values[1] = kInfinity, values.back() = kNan;
      for (const float limit : {0.25f, 0.0f, kInfinity}) {
        auto limited = between_canaries(values, misalign);
        finish.limit(limited.data() + misalign, n, limit);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const float got = limited[static_cast<std::size_t>(misalign) + i];
          if (std::isnan(values[i])) {
            ASSERT_TRUE(std::isnan(got));
          } else {
            ASSERT_EQ(got, std::clamp(values[i], -limit, limit)) << n << " at " << i;
          }
        }
        expect_canaries(limited, misalign, n);
      }
    }
  }
}

TEST(FinishAverage, is_within_two_roundings_of_fp64_and_touches_no_other) {
  const Finish finish(choose_element_pass());
  for (const Index n : lengths()) {
    for (const Index misalign : {0, 1, 3, 7}) {
      const auto values = random_values(n, 2, 100), old = random_values(n, 3, 100);
      for (const float share : {0.0f, 1e-4f, 0.25f, 0.5f, 1.0f}) {
        auto average = between_canaries(old, misalign);
        finish.average(values.data(), n, share, average.data() + misalign);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double want = old[i] + double{share} * (double{values[i]} - old[i]);
          const double room = kEpsilon * (std::abs(old[i]) + std::abs(values[i]));
          ASSERT_NEAR(average[static_cast<std::size_t>(misalign) + i], want, room) << n;
        }
        expect_canaries(average, misalign, n);
      }
    }
  }
}

TEST(FinishAverage, an_average_of_what_does_not_change_stays_bit_by_bit) {
  const auto values = random_values(1003, 4, 1e30f);
  for (const float share : {0.0f, 1e-3f, 0.999f, 1.0f}) {
    std::vector<float> average(values);
    for (int t = 0; t < 50; ++t)
      Finish(choose_element_pass()).average(values.data(), 1003, share, average.data());
    EXPECT_EQ(average, values) << share;
  }
}

// From 0 towards 1: after t steps 1 - (1 - share)^t.
TEST(FinishAverage, approaches_a_constant_geometrically) {
  const std::vector<float> ones(37, 1.0f);
  std::vector<float> average(37, 0.0f);
  for (int t = 1; t <= 2000; ++t) {
    Finish(choose_element_pass()).average(ones.data(), 37, 0x1p-7f, average.data());
    if (t != 1 && t != 10 && t != 300 && t != 2000) continue;
    for (const float got : average) ASSERT_NEAR(got, 1 - std::pow(1 - 0x1p-7, t), 2e-5) << t;
  }
}

TEST(Finish, one_bad_element_stays_alone_wherever_it_is) {
  const Finish finish(choose_element_pass());
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (Index at = 0; at < 37; ++at) {
      const auto hit = static_cast<std::size_t>(at);
      std::vector<float> values = random_values(37, 5), clean(values), average(37, 0.5f);
      values[hit] = bad;
      std::vector<float> scaled(values);
      finish.scale(scaled.data(), 37, 0.5f);
      finish.average(values.data(), 37, 0.25f, average.data());
      for (std::size_t i = 0; i < 37; ++i) {
        if (i != hit) {
          ASSERT_EQ(scaled[i], clean[i] / 2);
          ASSERT_TRUE(std::isfinite(average[i]));
        } else if (std::isnan(bad)) {
          ASSERT_TRUE(std::isnan(scaled[i]) && std::isnan(average[i]));
        } else {
          ASSERT_TRUE(scaled[i] == bad && average[i] == bad);
        }
      }
    }
  }
}

TEST(Finish, subnormal_products_are_not_flushed) {
  std::vector<float> values(35, 0x1p-126f), average(35, 0.0f);
  Finish(choose_element_pass()).scale(values.data(), 35, 0x1p-20f);
  for (const float value : values) ASSERT_EQ(value, 0x1p-146f);
  Finish(choose_element_pass()).average(values.data(), 35, 0.5f, average.data());
  for (const float value : average) ASSERT_EQ(value, 0x1p-147f);
}

TEST(Finish, reads_and_writes_up_to_the_page_and_no_further) {
  const Finish finish(choose_element_pass());
  for (const Index n : lengths()) {
    const GuardedFloats values(random_values(n, 6)), average(random_values(n, 7));
    std::vector<float> plain(values.data(), values.data() + n);
    finish.average(values.data(), n, 0.5f, average.data());
    finish.scale(values.data(), n, 3.0f);
    for (Index i = 0; i < n; ++i) {
      ASSERT_EQ(values.data()[i], plain[static_cast<std::size_t>(i)] * 3.0f);
    }
  }
}

TEST(Finish, plain_loops_say_the_same) {
  const auto values = random_values(1001, 8), old = random_values(1001, 9);
  std::vector<float> fast(old), plain(old), scaled(values), scaled_plain(values);
  Finish(choose_element_pass()).average(values.data(), 1001, 0.1f, fast.data());
  Finish(element_pass_ref()).average(values.data(), 1001, 0.1f, plain.data());
  for (std::size_t i = 0; i < 1001; ++i) ASSERT_NEAR(fast[i], plain[i], 2 * kEpsilon) << i;
  Finish(choose_element_pass()).scale(scaled.data(), 1001, 0.1f);
  Finish(element_pass_ref()).scale(scaled_plain.data(), 1001, 0.1f);
  EXPECT_EQ(scaled, scaled_plain);
}

}  // namespace
}  // namespace hone::kernels
