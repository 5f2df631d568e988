// SPDX-License-Identifier: Apache-2.0
// State in few bits: rounding is unbiased, codes err by at most half a step.
#include "hone/kernels/multi_tensor/codec/state_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "hone/core/bf16.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::kNan;
using test::random_values;

// Narrow storage for `n` elements.
struct Narrow {
  Narrow(Dtype dtype_in, Index n)
      : dtype(dtype_in),
        bytes(static_cast<std::size_t>(n * bytes_of(dtype_in))),
        scales(static_cast<std::size_t>(ceil_div(n, kCodeBlock))),
        length(n) {}
  NarrowChunk chunk() { return {dtype, bytes.data(), scales.data(), length}; }
  std::vector<float> decode() {
    std::vector<float> values(static_cast<std::size_t>(length));
    decode_chunk(chunk(), values.data());
    return values;
  }
  std::vector<float> round_trip(const std::vector<float>& values, const RoundingKey& key) {
    encode_chunk(values.data(), key, chunk());
    return decode();
  }

  Dtype dtype;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  Index length;
};

// All numbers that codes stand for, with scale 1.
std::vector<float> code_values(Dtype dtype) {
  Narrow narrow(dtype, 256);
  for (int i = 0; i < 256; ++i) narrow.bytes[static_cast<std::size_t>(i)] = std::byte(i);
  narrow.scales[0] = 1;
  return narrow.decode();
}

TEST(StateCodec, vectors_and_reference_have_the_same_bits) {
  for (const Dtype dtype : {Dtype::BFloat16, Dtype::Float16, Dtype::Int8, Dtype::UInt8}) {
    for (const Index n : {0, 1, 63, 64, 255, 256, 257, 1000, 16384}) {
      for (const bool nearest : {false, true}) {
        auto values = random_values(n, 7);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = std::ldexp(values[i], -static_cast<int>(i % 40));
          if (dtype == Dtype::UInt8) values[i] = std::abs(values[i]);
        }
        if (n > 300) values[280] = kNan;
        const RoundingKey key{99, 512, nearest};
        Narrow fast(dtype, n), plain(dtype, n);
        encode_chunk(values.data(), key, fast.chunk());
        encode_chunk_ref(values.data(), key, plain.chunk());
        EXPECT_EQ(fast.bytes, plain.bytes) << name_of(dtype) << " " << n;
        std::vector<float> a = fast.decode(), b(a.size());
        decode_chunk_ref(plain.chunk(), b.data());
        if (n == 0) continue;
        EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << name_of(dtype);
      }
    }
  }
}

TEST(StateCodec, nearest_codes_err_by_at_most_half_a_step) {
  for (const Dtype dtype : {Dtype::Int8, Dtype::UInt8}) {
    std::vector<float> codes = code_values(dtype);
    std::ranges::sort(codes);
    EXPECT_EQ(codes.back(), 1);
    EXPECT_EQ(std::set<float>(codes.begin(), codes.end()).size(),
              dtype == Dtype::Int8 ? 255u : 256u)
        << "0 and -0 are one";
    auto values = random_values(100 * kCodeBlock, 3);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::ldexp(values[i], -static_cast<int>(i % 23));
      if (dtype == Dtype::UInt8) values[i] = std::abs(values[i]);
    }
    Narrow narrow(dtype, static_cast<Index>(values.size()));
    const auto got = narrow.round_trip(values, {.nearest = true});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float scale = narrow.scales[i / kCodeBlock], relative = values[i] / scale;
      const auto above = std::ranges::upper_bound(codes, relative);
      const float high = above == codes.end() ? codes.back() : *above;
      const float low = above == codes.begin() ? codes.front() : *std::prev(above);
      const float half = (high - low) / 2;
      const bool lifted = dtype == Dtype::UInt8 && relative < codes[1];
      ASSERT_LE(std::abs(got[i] / scale - relative),
                lifted ? codes[1] : half * 1.0001f + std::abs(relative) * 2e-7f)
          << relative << " became " << got[i] / scale;
    }
  }
}

TEST(StateCodec, what_codes_stand_for_survives_stochastic_rounding) {
  for (const Dtype dtype : {Dtype::Int8, Dtype::UInt8}) {
    const std::vector<float> values = code_values(dtype);
    Narrow narrow(dtype, 256);
    for (std::uint32_t key = 0; key < 20; ++key) {
      const auto got = narrow.round_trip(values, {.key = key});
      for (std::size_t i = 0; i < 256; ++i) {
        ASSERT_NEAR(got[i], values[i], std::abs(values[i]) * 1e-6) << "code " << i;
      }
    }
  }
}

TEST(StateCodec, positive_second_moments_never_become_zero_and_zero_stays) {
  std::vector<float> values(kCodeBlock, 1e-30f);
  values[0] = 1;
  values[1] = 0;
  Narrow narrow(Dtype::UInt8, kCodeBlock);
  const auto got = narrow.round_trip(values, {.key = 5});
  EXPECT_EQ(got[1], 0);
  for (std::size_t i = 2; i < values.size(); ++i) ASSERT_GT(got[i], 0);
  Narrow zeros(Dtype::UInt8, kCodeBlock);
  for (const float v : zeros.round_trip(std::vector<float>(kCodeBlock, 0.0f), {})) EXPECT_EQ(v, 0);
}

TEST(StateCodec, a_block_with_a_bad_value_decodes_to_nan_and_its_neighbors_do_not) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> values(2 * kCodeBlock, 0.5f);
    values[7] = bad;
    Narrow narrow(Dtype::Int8, 2 * kCodeBlock);
    const auto got = narrow.round_trip(values, {});
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ(got[kCodeBlock], 0.5f);
  }
}

// The mean of n draws of a value between two neighbors lies within 5 standard errors.
void expect_unbiased(Dtype dtype, float value, float below, float above, float block_largest) {
  constexpr Index kDraws = 1'000'000;
  std::vector<float> values(kDraws, value);
  for (Index i = 0; i < kDraws; i += kCodeBlock)
    values[static_cast<std::size_t>(i)] = block_largest;
  Narrow narrow(dtype, kDraws);
  const auto got = narrow.round_trip(values, {.key = 1234});
  double sum = 0;
  Index counted = 0;
  for (Index i = 0; i < kDraws; ++i) {
    if (i % kCodeBlock == 0) continue;
    const float v = got[static_cast<std::size_t>(i)];
    ASSERT_TRUE(std::abs(v - below) < 1e-6f * above || std::abs(v - above) < 1e-6f * above) << v;
    sum += v;
    ++counted;
  }
  const double p = (value - below) / (above - below);
  const double error = (above - below) * std::sqrt(p * (1 - p) / static_cast<double>(counted));
  EXPECT_NEAR(sum / static_cast<double>(counted), value, 5 * error + 1e-7 * value)
      << name_of(dtype);
}

TEST(StateCodec, stochastic_rounding_is_unbiased) {
  for (const float share : {0.1f, 0.5f, 0.83f}) {
    const float step = 0x1p-7f;  // of bf16 in [1, 2)
    expect_unbiased(Dtype::BFloat16, 1 + share * step, 1, 1 + step, 1);
    // Codes of [0.5, 1) of a largest value of 1.875 are 1/16 apart.
    expect_unbiased(Dtype::Int8, 0.5f + share / 16, 0.5f, 0.5625f, 1.875f);
    expect_unbiased(Dtype::UInt8, 0.5f + share / 16, 0.5f, 0.5625f, 1.875f);
    // Subnormal codes: steps of 2^-17 and 2^-33.
    expect_unbiased(Dtype::Int8, (3 + share) * 0x1p-17f, 3 * 0x1p-17f, 4 * 0x1p-17f, 1.875f);
    expect_unbiased(Dtype::UInt8, (3 + share) * 0x1p-33f, 3 * 0x1p-33f, 4 * 0x1p-33f, 1.875f);
  }
}

TEST(StateCodec, representable_values_infinity_and_nan_stay_in_bf16) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    values.push_back(bf16_to_float(static_cast<std::uint16_t>(bits)));
  }
  Narrow narrow(Dtype::BFloat16, static_cast<Index>(values.size()));
  const auto got = narrow.round_trip(values, {.key = 77});
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(got[i]));
    } else {
      ASSERT_EQ(got[i], values[i]);
    }
  }
}

TEST(StateCodec, random_bits_depend_on_the_element_and_not_on_the_cut) {
  const auto values = random_values(5000, 11);
  Narrow whole(Dtype::BFloat16, 5000);
  const auto expected = whole.round_trip(values, {.key = 3});
  for (const Index cut : {1, 64, 999, 4096}) {
    Narrow parts(Dtype::BFloat16, 5000);
    NarrowChunk first = parts.chunk(), second = parts.chunk();
    first.length = cut;
    second.length = 5000 - cut;
    second.data = parts.bytes.data() + 2 * cut;
    encode_chunk(values.data(), {.key = 3}, first);
    encode_chunk(values.data() + cut, {.key = 3, .first_element = cut}, second);
    EXPECT_EQ(parts.decode(), expected) << cut;
  }
  std::set<std::uint32_t> keys;
  for (Index step = 1; step <= 100; ++step) {
    for (std::uint32_t tensor = 0; tensor < 100; ++tensor) {
      keys.insert(mix_rounding_key(1, tensor, step, 2));
    }
  }
  EXPECT_EQ(keys.size(), 10'000u);
}

}  // namespace
}  // namespace hone::kernels
