// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding as statistics see it, and the corners of codes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::random_values;

constexpr Index kDraws = 1 << 20;
constexpr float kStep = 0x1p-7f;  // of bf16 in [1, 2)

// 1 where 1 + share * kStep was rounded up.
std::vector<float> draws(float share, const RoundingKey& key) {
  const std::vector<float> values(kDraws, 1 + share * kStep);
  std::vector<std::uint16_t> bits(kDraws);
  encode_chunk(values.data(), key, {Dtype::BFloat16, bits.data(), nullptr, kDraws});
  std::vector<float> ups(kDraws);
  for (std::size_t i = 0; i < ups.size(); ++i) ups[i] = (bf16_to_float(bits[i]) - 1) / kStep;
  return ups;
}

// Mean of (a_i - p)(b_{i + lag} - p) in standard errors of independent draws.
double correlation(const std::vector<float>& a, const std::vector<float>& b, double p,
                   std::size_t lag) {
  double sum = 0;
  for (std::size_t i = 0; i + lag < a.size(); ++i) sum += (a[i] - p) * (b[i + lag] - p);
  return sum / (p * (1 - p) * std::sqrt(static_cast<double>(a.size() - lag)));
}

TEST(Rounding, draws_are_coins_of_the_right_mean_and_independent_of_their_neighbors) {
  for (const float share : {0.125f, 0.5f, 0.75f}) {
    const auto ups = draws(share, {.key = mix_rounding_key(1, 2, 3, 0)});
    double sum = 0;
    for (const float up : ups) {
      ASSERT_TRUE(up == 0 || up == 1);
      sum += up;
    }
    EXPECT_LT(std::abs(sum - kDraws * share), 5 * std::sqrt(kDraws * share * (1 - share)));
    for (const std::size_t lag : {1u, 2u, 3u, 8u, 16u, 64u, 256u, 16'384u}) {
      EXPECT_LT(std::abs(correlation(ups, ups, share, lag)), 5) << share << " lag " << lag;
    }
  }
}

TEST(Rounding, counts_of_ups_in_groups_have_the_variance_of_independent_draws) {
  constexpr Index kGroup = 256, kGroups = kDraws / kGroup;
  for (const float share : {0.25f, 0.5f}) {
    const auto ups = draws(share, {.key = mix_rounding_key(9, 0, 1, 2)});
    const double mean = kGroup * share, variance = mean * (1 - share);
    double squares = 0;
    for (Index g = 0; g < kGroups; ++g) {
      double count = -mean;
      for (Index i = 0; i < kGroup; ++i) count += ups[static_cast<std::size_t>(g * kGroup + i)];
      squares += count * count;
    }
    // A sample variance of n normal draws errs by sqrt(2 / n).
    EXPECT_NEAR(squares / kGroups / variance, 1, 5 * std::sqrt(2.0 / kGroups)) << share;
  }
}

TEST(Rounding, seeds_tensors_steps_and_slots_draw_independently) {
  const auto base = draws(0.5f, {.key = mix_rounding_key(1, 2, 3, 0)});
  for (const std::uint32_t key :
       {mix_rounding_key(2, 2, 3, 0), mix_rounding_key(1 + (1ull << 32), 2, 3, 0),
        mix_rounding_key(1, 3, 3, 0), mix_rounding_key(1, 2, 4, 0), mix_rounding_key(1, 2, 3, 2),
        mix_rounding_key(1, 2, 3 + (Index{1} << 32), 0)}) {
    const auto other = draws(0.5f, {.key = key});
    for (const std::size_t lag : {0u, 1u, 2u}) {
      EXPECT_LT(std::abs(correlation(base, other, 0.5, lag)), 5) << key << " lag " << lag;
    }
  }
}

TEST(Rounding, swapped_parts_of_a_key_are_another_key) {
  EXPECT_NE(mix_rounding_key(1, 2, 3, 0), mix_rounding_key(1, 3, 2, 0));
  EXPECT_NE(mix_rounding_key(1, 2, 3, 0), mix_rounding_key(2, 1, 3, 0));
  EXPECT_NE(mix_rounding_key(0, 0, 0, 2), mix_rounding_key(0, 0, 2, 0));
}

TEST(Rounding, to_nearest_is_that_of_float_to_bf16_for_every_kind_of_number) {
  std::vector<float> values = random_values(4099, 5, 1e3f);
  for (std::uint32_t high = 0; high < 0x10000; high += 7) {
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>((high << 16) | low));  // ties, NaN, inf, subnormals
    }
  }
  std::vector<std::uint16_t> got(values.size());
  encode_chunk(values.data(), {.key = 9, .nearest = true},
               {Dtype::BFloat16, got.data(), nullptr, static_cast<Index>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i], float_to_bf16(values[i])) << values[i];
  }
}

TEST(Rounding, never_leaves_the_two_neighbors) {
  auto values = random_values(50'000, 6);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i % 240) - 140);
  }
  std::vector<std::uint16_t> got(values.size());
  encode_chunk(values.data(), {.key = 11},
               {Dtype::BFloat16, got.data(), nullptr, static_cast<Index>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto low = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
    ASSERT_TRUE(got[i] == low || got[i] == low + 1) << values[i];
  }
}

// Scales down to the smallest subnormal: vectors and plain loops agree, nothing becomes larger
// than the block's largest, NaN or of another sign.
TEST(Codes, of_tiny_blocks_agree_with_plain_loops_and_stay_within_their_scale) {
  for (const Dtype dtype : {Dtype::Int8, Dtype::UInt8}) {
    for (int exponent = -149; exponent <= 127; exponent += exponent < -120 ? 1 : 13) {
      auto values = random_values(kCodeBlock, 12);
      for (float& value : values) {
        value = std::ldexp(dtype == Dtype::UInt8 ? std::abs(value) : value, exponent);
      }
      std::vector<std::byte> fast(kCodeBlock), plain(kCodeBlock);
      float fast_scale = -1, plain_scale = -1;
      const RoundingKey key{13, 0, false};
      encode_chunk(values.data(), key, {dtype, fast.data(), &fast_scale, kCodeBlock});
      encode_chunk_ref(values.data(), key, {dtype, plain.data(), &plain_scale, kCodeBlock});
      ASSERT_EQ(fast, plain) << name_of(dtype) << " 2^" << exponent;
      ASSERT_EQ(fast_scale, plain_scale);
      std::vector<float> back(kCodeBlock);
      decode_chunk({dtype, fast.data(), &fast_scale, kCodeBlock}, back.data());
      for (std::size_t i = 0; i < back.size(); ++i) {
        ASSERT_LE(std::abs(back[i]), fast_scale * 1.000001f) << exponent;
        ASSERT_GE(back[i] * std::copysign(1.0f, values[i]), 0) << exponent;
      }
    }
  }
}

TEST(Codes, the_largest_of_a_block_comes_back_and_minus_zero_keeps_its_sign) {
  for (const float largest : {0x1p-100f, 0.3f, 1.0f, 1.9f, 12345.678f, 3e38f}) {
    std::vector<float> values(kCodeBlock, -0.0f), back(kCodeBlock);
    values[100] = -largest;
    std::vector<std::byte> codes(kCodeBlock);
    float scale = 0;
    encode_chunk(values.data(), {.key = 1}, {Dtype::Int8, codes.data(), &scale, kCodeBlock});
    decode_chunk({Dtype::Int8, codes.data(), &scale, kCodeBlock}, back.data());
    EXPECT_EQ(scale, largest);
    EXPECT_NEAR(back[100] / -largest, 1, 3e-7) << largest;
    EXPECT_TRUE(back[0] == 0 && std::signbit(back[0]));
  }
}

}  // namespace
}  // namespace hone::kernels
