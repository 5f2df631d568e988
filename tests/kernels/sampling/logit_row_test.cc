// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sampling/logit_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::kNan;

// The definitions, as plain loops; the exponential of the masses in double.
LogitRange logit_range_ref(const float* logits, Index count) {
  LogitRange range{.highest = -kInfinity, .is_finite = true};
  for (Index i = 0; i < count; ++i) {
    range.highest = std::max(range.highest, logits[i]);
    range.is_finite = range.is_finite && std::isfinite(logits[i]);
  }
  return range;
}

void group_maxima_ref(const float* logits, Index count, float* maxima) {
  for (Index first = 0; first < count; first += kLogitGroup) {
    maxima[first / kLogitGroup] =
        *std::max_element(logits + first, logits + std::min(count, first + kLogitGroup));
  }
}

Index first_at_least_ref(const float* logits, Index count, float bound) {
  return std::find_if(logits, logits + count, [=](float x) { return x >= bound; }) - logits;
}

Index collect_at_least_ref(const float* logits, Index count, float bound, std::int32_t* ids) {
  Index found = 0;
  for (Index i = 0; i < count; ++i) {
    if (logits[i] >= bound) ids[found++] = static_cast<std::int32_t>(i);
  }
  return found;
}

void softmax_masses_ref(const float* logits, Index count, float highest, float temperature,
                        std::uint64_t* masses) {
  for (Index i = 0; i < count; ++i) {
    const double scaled = (static_cast<double>(logits[i]) - highest) / temperature;
    masses[i] = static_cast<std::uint64_t>(std::llround(std::exp(scaled) * 0x1p43));
  }
}

constexpr Index kSizes[] = {0, 1, 7, 16, 63, 64, 65, 129, 1000, 4099};

TEST(LogitRange, equals_the_plain_loop) {
  for (const Index count : kSizes) {
    const auto logits = test::random_values(count, 2, 50);
    EXPECT_EQ(logit_range(logits.data(), count).highest,
              logit_range_ref(logits.data(), count).highest);
    EXPECT_TRUE(logit_range(logits.data(), count).is_finite) << count;
  }
}

TEST(LogitRange, one_bad_logit_anywhere_is_seen) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (std::size_t at = 0; at < 70; ++at) {
      auto logits = test::random_values(70, 2);
      logits[at] = bad;
      EXPECT_FALSE(logit_range(logits.data(), 70).is_finite) << bad << " at " << at;
    }
  }
}

TEST(LogitRange, of_masked_rows_is_minus_infinity) {
  const std::vector<float> masked(100, -kInfinity);
  EXPECT_EQ(logit_range(masked.data(), 100).highest, -kInfinity);
  EXPECT_EQ(logit_range(masked.data(), 0).highest, -kInfinity);
}

TEST(GroupMaxima, equal_the_plain_loop) {
  for (const Index count : kSizes) {
    auto logits = test::random_values(count, 4, 9);
    if (count > 300) std::fill_n(logits.begin() + 64, 64, -kInfinity);
    std::vector<float> got(static_cast<std::size_t>(ceil_div(count, kLogitGroup))), want = got;
    group_maxima(logits.data(), count, got.data());
    group_maxima_ref(logits.data(), count, want.data());
    EXPECT_EQ(got, want) << count;
  }
}

TEST(AtLeast, finds_and_collects_what_the_plain_loops_do) {
  for (const Index count : kSizes) {
    const auto logits = test::random_values(count, 6);
    for (const float bound : {-2.0f, -0.5f, 0.0f, 0.9f, 0.999f, 2.0f}) {
      EXPECT_EQ(first_at_least(logits.data(), count, bound),
                first_at_least_ref(logits.data(), count, bound));
      std::vector<std::int32_t> got(static_cast<std::size_t>(count)), want = got;
      const Index found = collect_at_least(logits.data(), count, bound, got.data());
      ASSERT_EQ(found, collect_at_least_ref(logits.data(), count, bound, want.data()));
      EXPECT_TRUE(std::equal(got.begin(), got.begin() + found, want.begin())) << count;
    }
  }
}

TEST(AtLeast, the_bound_itself_is_found) {
  const std::vector<float> logits = {0, 3, 1, 3};
  std::vector<std::int32_t> ids(4);
  EXPECT_EQ(first_at_least(logits.data(), 4, 3), 1);
  EXPECT_EQ(collect_at_least(logits.data(), 4, 3, ids.data()), 2);
  EXPECT_EQ(ids[1], 3);
}

TEST(SoftmaxMasses, are_the_exponentials_within_the_stated_bound) {
  for (const float temperature : {0.2f, 1.0f, 4.0f}) {
    const auto logits = test::random_values(5003, 7, 15);
    const float highest = *std::max_element(logits.begin(), logits.end());
    std::vector<std::uint64_t> got(5003), want(5003);
    const std::uint64_t total =
        softmax_masses(logits.data(), 5003, highest, temperature, got.data());
    softmax_masses_ref(logits.data(), 5003, highest, temperature, want.data());
    EXPECT_EQ(total, std::accumulate(got.begin(), got.end(), std::uint64_t{0}));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double scaled = (static_cast<double>(logits[i]) - highest) / temperature;
      const double expected = static_cast<double>(want[i]);
      EXPECT_NEAR(static_cast<double>(got[i]), expected, 0x1p-21 * (1 - scaled) * expected + 1.5)
          << scaled;
    }
  }
}

// The bits are a part of the contract: the sums decide which token top-p cuts last. The oracle
// repeats the rounding of each operation in plain f32.
TEST(SoftmaxMasses, have_the_same_bits_as_separately_rounded_operations) {
  const auto mass_of = [](float x) -> std::uint64_t {
    if (x < -40) return 0;
    const float n = std::nearbyint(x * 1.44269504f);
    const float r = (x - n * 0x1.62ep-1f) - n * 0x1.0bfbe8p-15f;
    float sum = 1.0f / 5040;
    for (const float factorial : {720.0f, 120.0f, 24.0f, 6.0f, 2.0f, 1.0f, 1.0f}) {
      sum = sum * r + 1 / factorial;
    }
    return static_cast<std::uint64_t>(
        std::nearbyint(std::ldexp(static_cast<double>(sum), static_cast<int>(n) + 43)));
  };
  auto logits = test::random_values(20011, 9, 25);
  logits[5] = 25;
  std::vector<std::uint64_t> masses(logits.size());
  softmax_masses(logits.data(), 20011, 25, 1, masses.data());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    ASSERT_EQ(masses[i], mass_of(logits[i] - 25)) << logits[i];
  }
}

TEST(SoftmaxMasses, of_masked_and_hopeless_tokens_are_zero_at_every_temperature) {
  const std::vector<float> logits = {2, -kInfinity, -3e38f, 1};
  std::vector<std::uint64_t> masses(4);
  for (const float temperature : {1e-45f, 1e-39f, 1e-3f}) {
    EXPECT_EQ(softmax_masses(logits.data(), 4, 2, temperature, masses.data()),
              std::uint64_t{1} << 43);
    EXPECT_EQ(masses, (std::vector<std::uint64_t>{std::uint64_t{1} << 43, 0, 0, 0}));
  }
}

TEST(SoftmaxMasses, refuse_more_logits_than_the_sum_can_hold) {
  const std::string error =
      test::error_of([] { softmax_masses(nullptr, (1 << 20) + 1, 0, 1, nullptr); });
  EXPECT_NE(error.find("2^20"), std::string::npos);
}

// top-k gathers logits before top-p weighs them: a mass must not depend on its place.
TEST(SoftmaxMasses, do_not_depend_on_the_place_in_the_row) {
  const auto logits = test::random_values(331, 10, 20);
  std::vector<std::uint64_t> together(331), alone(1);
  softmax_masses(logits.data(), 331, 20, 0.7f, together.data());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    softmax_masses(&logits[i], 1, 20, 0.7f, alone.data());
    ASSERT_EQ(alone[0], together[i]) << i;
  }
  std::vector<std::uint64_t> shifted(330);
  softmax_masses(logits.data() + 1, 330, 20, 0.7f, shifted.data());
  EXPECT_TRUE(std::equal(shifted.begin(), shifted.end(), together.begin() + 1));
}

TEST(SoftmaxMasses, of_the_largest_possible_vocabulary_do_not_overflow) {
  constexpr Index kLargest = Index{1} << 20;
  const std::vector<float> equal(kLargest, 7.0f);
  std::vector<std::uint64_t> masses(kLargest);
  EXPECT_EQ(softmax_masses(equal.data(), kLargest, 7, 1, masses.data()), std::uint64_t{1} << 63);
}

// Rows that end before an unreadable page, and results between sentinels.
class LogitRowBounds : public testing::TestWithParam<Index> {};

TEST_P(LogitRowBounds, nothing_beyond_the_row_is_read) {
  const Index count = GetParam();
  const auto values = test::random_values(count, 13, 4);
  const test::GuardedFloats row(values);
  EXPECT_EQ(logit_range(row.data(), count).highest, logit_range_ref(row.data(), count).highest);
  EXPECT_EQ(first_at_least(row.data(), count, 3.9f), first_at_least_ref(row.data(), count, 3.9f));
  std::vector<float> maxima(static_cast<std::size_t>(ceil_div(count, kLogitGroup)));
  group_maxima(row.data(), count, maxima.data());
  EXPECT_EQ(*std::max_element(maxima.begin(), maxima.end()),
            *std::max_element(values.begin(), values.end()));
}

TEST_P(LogitRowBounds, nothing_beyond_the_results_is_written) {
  const Index count = GetParam();
  const auto size = static_cast<std::size_t>(count);
  const auto values = test::random_values(count, 13, 4);
  constexpr std::int32_t kSentinel = -77;
  std::vector<std::int32_t> ids(size + 8, kSentinel);
  EXPECT_EQ(collect_at_least(values.data(), count, -5, ids.data()), count);
  EXPECT_TRUE(std::all_of(ids.begin() + count, ids.end(), [](auto id) { return id == kSentinel; }));
  std::vector<std::uint64_t> masses(size + 8, 123);
  softmax_masses(values.data(), count, 4, 1, masses.data());
  EXPECT_TRUE(std::all_of(masses.begin() + count, masses.end(), [](auto m) { return m == 123; }));
  const auto groups = static_cast<std::size_t>(ceil_div(count, kLogitGroup));
  std::vector<float> maxima(groups + 8, 99.0f);
  group_maxima(values.data(), count, maxima.data());
  EXPECT_TRUE(std::all_of(maxima.begin() + static_cast<Index>(groups), maxima.end(),
                          [](float m) { return m == 99.0f; }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, LogitRowBounds, testing::Values(1, 5, 16, 63, 64, 65, 130, 1001));

}  // namespace
}  // namespace hone::kernels
