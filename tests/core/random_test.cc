// SPDX-License-Identifier: Apache-2.0
// Statistical tests of the generator. Each bound is the quantile of its chi-square distribution at
// error probability 1e-6; seeds are fixed, so a test that passes keeps passing.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "hone/core/philox.h"

namespace hone {
namespace {

// Upper 1e-6 quantile of chi-square with `freedom` degrees, at least 100, by Wilson and
// Hilferty (1931).
double quantile(double freedom) {
  constexpr double kNormal = 4.7534;  // upper 1e-6 quantile of the normal distribution
  const double part = 2 / (9 * freedom);
  const double root = 1 - part + kNormal * std::sqrt(part);
  return freedom * root * root * root;
}

double chi_square(const std::vector<double>& counts, double expected) {
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(Quantile, is_near_the_tabulated_value) { EXPECT_NEAR(quantile(255), 377.4, 2); }

TEST(PhiloxStream, every_byte_of_every_word_is_uniform) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    PhiloxStream stream(seed, 9);
    std::array<std::vector<double>, 4> counts;
    for (auto& byte : counts) byte.assign(256, 0);
    constexpr int kDraws = 256 * 1000;
    for (int i = 0; i < kDraws; ++i) {
      const std::uint32_t word = stream();
      for (std::size_t byte = 0; byte < 4; ++byte) ++counts[byte][word >> (8 * byte) & 255];
    }
    for (const auto& byte : counts) EXPECT_LT(chi_square(byte, 1000), quantile(255)) << seed;
  }
}

TEST(PhiloxStream, neighboring_draws_and_streams_are_independent) {
  PhiloxStream first(7, 0), second(7, 1);
  std::vector<double> serial(256, 0), across(256, 0);
  std::uint32_t last = first();
  for (int i = 0; i < 256 * 1000; ++i) {
    const std::uint32_t now = first();
    ++serial[(last >> 28 << 4) | now >> 28];
    ++across[(second() >> 28 << 4) | now >> 28];
    last = now;
  }
  EXPECT_LT(chi_square(serial, 1000), quantile(255));
  EXPECT_LT(chi_square(across, 1000), quantile(255));
}

TEST(PhiloxStream, uniform_reals_stay_inside_the_open_interval_and_fill_it) {
  PhiloxStream stream(3);
  std::vector<double> floats(1000, 0), doubles(1000, 0);
  for (int i = 0; i < 1'000'000; ++i) {
    const float x = stream.uniform();
    const double y = stream.uniform_double();
    ASSERT_TRUE(x > 0 && x < 1 && y > 0 && y < 1);
    ++floats[static_cast<std::size_t>(x * 1000.0)];
    ++doubles[static_cast<std::size_t>(y * 1000)];
  }
  EXPECT_LT(chi_square(floats, 1000), quantile(999));
  EXPECT_LT(chi_square(doubles, 1000), quantile(999));
  EXPECT_GT(open_unit_float(0), 0);
  EXPECT_LT(open_unit_float(~0u), 1);
  EXPECT_GT(open_unit_double(0, 0), 0);
  EXPECT_LT(open_unit_double(~0u, ~0u), 1);
}

TEST(PhiloxStream, below_one_is_zero_and_takes_one_draw) {
  PhiloxStream stream(1);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    ASSERT_EQ(stream.below(1), 0u);
    ASSERT_EQ(stream.position(), i);
  }
}

// For a power of two the result is the top bits and nothing is ever rejected.
TEST(PhiloxStream, below_a_power_of_two_is_the_top_bits) {
  for (const std::uint32_t shift : {1u, 8u, 31u}) {
    PhiloxStream bounded(5), plain(5);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(bounded.below(1u << shift), plain() >> (32 - shift));
      ASSERT_EQ(bounded.position(), plain.position());
    }
  }
}

// The definition, drawn from a second copy of the stream: reject where the low half of the product
// is below 2^32 mod bound.
TEST(PhiloxStream, below_follows_its_definition_at_every_kind_of_bound) {
  for (const std::uint32_t bound : {2u, 3u, 7u, 1000u, 65537u, 0x7fffffffu, 0x80000000u,
                                    0x80000001u, 0xc0000000u, 0xfffffffeu, 0xffffffffu}) {
    PhiloxStream bounded(11), plain(11);
    const std::uint64_t reject_below = (std::uint64_t{1} << 32) % bound;
    for (int i = 0; i < 5000; ++i) {
      std::uint64_t product = 0;
      do {
        product = std::uint64_t{plain()} * bound;
      } while ((product & 0xffffffffu) < reject_below);
      const std::uint32_t drawn = bounded.below(bound);
      ASSERT_LT(drawn, bound);
      ASSERT_EQ(drawn, product >> 32) << bound;
      ASSERT_EQ(bounded.position(), plain.position()) << bound;
    }
  }
}

// Just above 2^31 half of all draws are rejected; a generator without rejection would give some
// results twice as often.
TEST(PhiloxStream, below_a_bound_above_half_the_range_is_uniform) {
  const std::uint32_t bound = 0xc0000000u;
  PhiloxStream stream(13);
  std::vector<double> counts(192, 0), parity(3, 0);
  for (int i = 0; i < 192 * 1000; ++i) {
    const std::uint32_t drawn = stream.below(bound);
    ++counts[drawn >> 24];
    ++parity[drawn % 3];
  }
  EXPECT_LT(chi_square(counts, 1000), quantile(191));
  EXPECT_LT(chi_square(parity, 64'000), 27.64);  // -2 ln 1e-6
}

TEST(PhiloxStream, seeking_anywhere_gives_the_draws_of_an_unbroken_run) {
  std::vector<std::uint32_t> run;
  PhiloxStream stream(21, 4);
  for (int i = 0; i < 200; ++i) run.push_back(stream());
  PhiloxStream jumping(21, 4), order(1);
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t to = order.below(190);
    jumping.seek(to);
    for (std::uint32_t k = 0; k < 1 + order.below(9); ++k) ASSERT_EQ(jumping(), run[to + k]);
  }
  // Positions from 2^34 on need the second counter word.
  PhiloxStream far(21, 4);
  far.seek(std::uint64_t{1} << 34);
  EXPECT_EQ(far(), philox(21, {0, 1, 4, 0})[0]);
  EXPECT_EQ(far.position(), (std::uint64_t{1} << 34) + 1);
}

TEST(Philox, one_bit_of_key_or_counter_changes_half_of_the_output) {
  const PhiloxBlock base = philox(0x123456789abcdefu, {1, 2, 3, 4});
  const auto changed = [&](const PhiloxBlock& other) {
    int bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits += __builtin_popcount(base[i] ^ other[i]);
    return bits;
  };
  double sum = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const int key = changed(philox(0x123456789abcdefu ^ (std::uint64_t{1} << bit), {1, 2, 3, 4}));
    PhiloxBlock counter = {1, 2, 3, 4};
    counter[static_cast<std::size_t>(bit / 16)] ^= 1u << (bit % 16 * 2);
    const int moved = changed(philox(0x123456789abcdefu, counter));
    // Binomial(128, 1/2): 64 +- 5.66; six deviations each.
    EXPECT_NEAR(key, 64, 34) << bit;
    EXPECT_NEAR(moved, 64, 34) << bit;
    sum += key + moved;
  }
  EXPECT_NEAR(sum / 128, 64, 6 * 5.66 / std::sqrt(128.0));
}

}  // namespace
}  // namespace hone
