// SPDX-License-Identifier: Apache-2.0
// Unscaling, rounding through fp16 and its statistics, against plain loops bit by bit.
#include "hone/kernels/multi_tensor/codec/loss_scale.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "hone/core/bf16.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::kNan;
using Values = std::vector<float>;

constexpr Index kLengths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 255, 1023, 16'384};

// Values of every magnitude around fp16's range, half of them ties between two fp16 numbers, with
// zeros, infinities and NaN.
Values mixed(Index length, std::uint64_t seed) {
  PhiloxStream random(seed);
  Values values(static_cast<std::size_t>(length));
  for (float& value : values) {
    const std::uint32_t exponent = 127 - 45 + random.below(70);  // 2^-45 … 2^24
    const std::uint32_t cut = 8 + random.below(16);
    const std::uint32_t bits = random();
    value = std::bit_cast<float>((bits & 0x80000000u) | (exponent << 23) |
                                 ((bits & 0x7fffffu) >> cut << cut));
    const std::uint32_t special = random.below(64);
    if (special == 0) value = std::copysign(0.0f, value);
    if (special == 1) value = std::copysign(kInfinity, value);
    if (special == 2) value = kNan;
    if (special == 3) value = 1e-40f;
  }
  return values;
}

bool same_bits(const Values& a, const Values& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(LossScale, rounds_through_f16_bit_for_bit_at_every_length_and_alignment) {
  for (const Index length : kLengths) {
    for (Index offset = 0; offset <= 3; ++offset) {
      const Values from = mixed(length + offset, 7);
      Values ours = from, plain = from;
      round_through_f16(from.data() + offset, ours.data() + offset, length);
      round_through_f16_reference(from.data() + offset, plain.data() + offset, length);
      for (std::size_t i = 0; i < ours.size(); ++i) {
        if (std::isnan(from[i])) {
          EXPECT_TRUE(std::isnan(ours[i]));
          ours[i] = plain[i] = 0;
        }
      }
      EXPECT_TRUE(same_bits(ours, plain)) << length << " at " << offset;
    }
  }
}

TEST(LossScale, keeps_every_f16_number_and_rounds_ties_to_even) {
  Values halves, between, expected;
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float here = f16_to_float(static_cast<std::uint16_t>(bits));
    const float next =
        bits == 0x7bff ? 65536.0f : f16_to_float(static_cast<std::uint16_t>(bits + 1));
    halves.push_back(here);
    between.push_back(here + (next - here) / 2);
    expected.push_back(bits % 2 == 0 ? here : bits == 0x7bff ? kInfinity : next);
  }
  Values kept = halves;
  round_through_f16(kept.data(), kept.data(), static_cast<Index>(kept.size()));
  EXPECT_TRUE(same_bits(kept, halves));
  round_through_f16(between.data(), between.data(), static_cast<Index>(between.size()));
  EXPECT_TRUE(same_bits(between, expected));
}

TEST(LossScale, unscales_and_sums_squares_in_one_sweep) {
  for (const Index length : kLengths) {
    for (Index offset = 0; offset <= 3; ++offset) {
      Values ours = test::random_integers(length + offset, 3, 1000), plain = ours;
      const double square_sum = unscale_chunk(ours.data() + offset, length, 0.3f);
      EXPECT_EQ(square_sum, unscale_chunk_reference(plain.data() + offset, length, 0.3f));
      EXPECT_TRUE(same_bits(ours, plain)) << length << " at " << offset;
    }
  }
}

TEST(LossScale, the_square_sum_is_not_finite_exactly_when_a_gradient_is_not) {
  for (const Index length : {1, 9, 33, 200}) {
    const Values huge(static_cast<std::size_t>(length), 3.4e38f);
    for (Index at = 0; at < length; ++at) {
      for (const float value : {1.0f, kNan, kInfinity, -kInfinity}) {
        Values grad = huge;
        grad[static_cast<std::size_t>(at)] = value;
        ASSERT_EQ(std::isfinite(unscale_chunk(grad.data(), length, 0.5f)), std::isfinite(value))
            << value << " at " << at << " of " << length;
      }
    }
  }
}

void expect_same(const F16Statistics& ours, const F16Statistics& plain) {
  EXPECT_EQ(ours.bins, plain.bins);
  EXPECT_EQ(ours.zeros, plain.zeros);
  EXPECT_EQ(ours.nonfinite, plain.nonfinite);
  EXPECT_EQ(ours.underflows, plain.underflows);
  EXPECT_EQ(ours.subnormals, plain.subnormals);
  EXPECT_EQ(ours.overflows, plain.overflows);
  EXPECT_EQ(ours.largest, plain.largest);
  // 16,384 roundings of sums of positive numbers in double.
  EXPECT_NEAR(ours.square_sum, plain.square_sum, 1e-11 * plain.square_sum);
  EXPECT_NEAR(ours.error_square_sum, plain.error_square_sum, 1e-11 * plain.error_square_sum);
}

TEST(LossScale, statistics_equal_plain_loops) {
  for (const float scale : {1.0f, 65536.0f, 0.001f, 3.7f}) {
    for (const Index length : kLengths) {
      const Values values = mixed(length + 1, 11);
      F16Statistics ours, plain;
      for (int twice = 0; twice < 2; ++twice) {
        measure_f16(values.data() + 1, length, 0.125f, scale, ours);
        measure_f16_reference(values.data() + 1, length, 0.125f, scale, plain);
      }
      expect_same(ours, plain);
      const Index counted = std::accumulate(ours.bins.begin(), ours.bins.end(), Index{0});
      EXPECT_EQ(counted + ours.zeros + ours.nonfinite, 2 * length);
    }
  }
}

F16Statistics statistics_of(const Values& values, float scale = 1) {
  F16Statistics statistics;
  measure_f16(values.data(), static_cast<Index>(values.size()), 1, scale, statistics);
  return statistics;
}

// One value in all places fills one slot of every table the kernel counts in.
TEST(LossScale, equal_values_are_all_counted) {
  for (const Index length : {1, 5, 16, 1000, 16'384, 100'003}) {
    const F16Statistics s = statistics_of(Values(static_cast<std::size_t>(length), -3.0f));
    EXPECT_EQ(s.bins[128], length);  // (2, 4]
    EXPECT_EQ(s.largest, 3);
    EXPECT_EQ(s.square_sum, 9.0 * static_cast<double>(length));
    EXPECT_EQ(s.zeros + s.nonfinite + s.underflows + s.subnormals + s.overflows, 0);
  }
}

// A sum in f32 would lose every 1 beside 2^60.
TEST(LossScale, sums_in_double_and_keeps_small_beside_large) {
  Values values(4096, 1.0f);
  values[17] = 0x1p15f;
  EXPECT_EQ(statistics_of(values).square_sum, 0x1p30 + 4095);
  values[17] = 0x1p20f;
  EXPECT_EQ(unscale_chunk(values.data(), 4096, 0.5f), 0x1p40 + 4095);
  EXPECT_EQ(values[17], 0x1p19f);
  EXPECT_EQ(values[4095], 0.5f);
}

TEST(LossScale, denormal_gradients_are_not_flushed) {
  Values values(40, 1e-40f);
  const F16Statistics s = statistics_of(values, 0x1p120f);
  EXPECT_EQ(s.bins[0], 40);
  EXPECT_EQ(s.zeros + s.underflows, 0);
  EXPECT_EQ(s.largest, 1e-40f);
  EXPECT_GT(unscale_chunk(values.data(), 40, 0.5f), 0);
  for (const float value : values) EXPECT_EQ(value, 1e-40f * 0.5f);
}

TEST(LossScale, statistics_of_parts_add_up_to_those_of_the_whole) {
  const Values values = mixed(5000, 21);
  const Values first(values.begin(), values.begin() + 1234);
  const Values second(values.begin() + 1234, values.end());
  F16Statistics sum = statistics_of(first, 8);
  sum += statistics_of(second, 8);
  expect_same(sum, statistics_of(values, 8));
}

// The bins decide what underflows at a power of two as scale.
TEST(LossScale, bins_end_where_f16_begins_to_keep_something) {
  const float last_lost = 0x1p-25f, first_kept = std::nextafter(0x1p-25f, 1.0f);
  EXPECT_EQ(statistics_of({last_lost}).underflows, 1);
  EXPECT_EQ(statistics_of({first_kept}).underflows, 0);
  const std::size_t bin = -25 - F16Statistics::kFirstExponent;
  EXPECT_EQ(statistics_of({last_lost}).bins[bin], 1);
  EXPECT_EQ(statistics_of({first_kept}).bins[bin + 1], 1);
}

TEST(LossScale, statistics_of_known_values) {
  const F16Statistics s =
      statistics_of({0, -0.0f, 1, -2, 0x1p-20f, 0x1p-30f, 65520, 3.4e38f, kInfinity, kNan});
  EXPECT_EQ(s.zeros, 2);
  EXPECT_EQ(s.nonfinite, 2);
  EXPECT_EQ(s.overflows, 2);
  EXPECT_EQ(s.subnormals, 1);
  EXPECT_EQ(s.underflows, 1);
  EXPECT_EQ(s.largest, 3.4e38f);
  EXPECT_EQ(s.bins[126], 1);  // 1: (1/2, 1]
  EXPECT_EQ(s.bins[127], 1);  // 2
  EXPECT_EQ(s.bins[254], 1);  // above 2^127
  EXPECT_EQ(s.error_square_sum, 0x1p-60);
  EXPECT_EQ(s.square_sum, 5 + 0x1p-40 + 0x1p-60);
}

TEST(LossScale, reads_and_writes_up_to_the_page_and_no_further) {
  for (const Index length : {1, 7, 8, 17, 33, 1000}) {
    const Values values = test::random_values(length, 5);
    const test::GuardedFloats guarded(values);
    F16Statistics statistics;
    measure_f16(guarded.data(), length, 1, 1, statistics);
    unscale_chunk(guarded.data(), length, 1);
    round_through_f16(guarded.data(), guarded.data(), length);
    EXPECT_NEAR(guarded.data()[length - 1], values.back(), 1e-3);
  }
}

}  // namespace
}  // namespace hone::kernels
