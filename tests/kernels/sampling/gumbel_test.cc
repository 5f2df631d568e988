// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sampling/gumbel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;

GumbelArgmaxArgs args_of(const std::vector<float>& logits, std::uint32_t position = 0) {
  return {.logits = logits.data(),
          .count = static_cast<Index>(logits.size()),
          .highest = *std::max_element(logits.begin(), logits.end()),
          .key = {.seed = 0x9e3779b97f4a7c15u, .position = position, .choice = 3}};
}

// The contract, written out with the published generator and the C library's logarithm.
TEST(GumbelNoise, is_the_documented_function_of_philox) {
  const GumbelKey key{.seed = 77, .position = 5, .choice = 9};
  for (const Index token : {0, 1, 15, 16, 63, 64, 1000, 128255, 2147483647}) {
    const auto id = static_cast<std::uint32_t>(token);
    const auto high = philox(77, {16 * (id / 64) + id % 16, 5, 1, 9})[id / 16 % 4];
    const auto low = philox(77, {id, 5, 2, 9})[0];
    const auto n = static_cast<double>((std::uint64_t{high} << 20) + (low >> 12));
    const double x = (n + 0.5) * 0x1p-52;
    const double want = -std::log(-std::log1p(-x));
    EXPECT_NEAR(gumbel_noise(key, token), want, 1e-15 * (1 + std::abs(want))) << token;
  }
}

// Kolmogorov's distance to exp(-exp(-g)): 2.73 / sqrt(n) has an error probability of 7e-7.
TEST(GumbelNoise, has_the_gumbel_distribution_over_tokens_and_over_positions) {
  constexpr Index kDraws = 100000;
  for (const bool over_tokens : {true, false}) {
    std::vector<double> draws;
    for (Index i = 0; i < kDraws; ++i) {
      const GumbelKey key{.seed = 1, .position = over_tokens ? 7 : static_cast<std::uint32_t>(i)};
      draws.push_back(gumbel_noise(key, over_tokens ? i : 7));
    }
    std::sort(draws.begin(), draws.end());
    hone::test::LargestError distance;
    for (Index i = 0; i < kDraws; ++i) {
      const double cdf = std::exp(-std::exp(-draws[static_cast<std::size_t>(i)]));
      distance.add(cdf, (static_cast<double>(i) + 0.5) / kDraws);
    }
    EXPECT_LT(distance.error, 2.73 / std::sqrt(kDraws));
  }
}

TEST(GumbelArgmax, equals_the_plain_loop_for_every_size_and_spread) {
  for (const Index count : {1, 2, 15, 16, 17, 63, 64, 65, 127, 1000, 4099}) {
    for (const float spread : {0.0f, 1e-6f, 1.0f, 12.0f, 1e6f, 3e38f}) {
      const auto logits = test::random_values(count, 5, spread);
      for (std::uint32_t position = 0; position < 20; ++position) {
        const GumbelArgmaxArgs args = args_of(logits, position);
        EXPECT_EQ(gumbel_argmax(args), gumbel_argmax_ref(args)) << count << " " << spread;
      }
    }
  }
}

TEST(GumbelArgmax, equals_the_plain_loop_over_a_large_vocabulary) {
  for (const float spread : {0.0f, 3.0f, 20.0f}) {
    const auto logits = test::random_values(128256, 6, spread);
    for (std::uint32_t position = 0; position < 4; ++position) {
      const GumbelArgmaxArgs args = args_of(logits, position);
      EXPECT_EQ(gumbel_argmax(args), gumbel_argmax_ref(args)) << spread;
    }
  }
}

TEST(GumbelArgmax, equals_the_plain_loop_at_every_temperature) {
  const auto logits = test::random_values(3001, 8, 9);
  for (const float temperature : {1e-45f, 1e-39f, 1e-30f, 1e-3f, 0.3f, 5.0f, 1e30f}) {
    for (std::uint32_t position = 0; position < 10; ++position) {
      GumbelArgmaxArgs args = args_of(logits, position);
      args.temperature = temperature;
      const Index winner = gumbel_argmax(args);
      EXPECT_EQ(winner, gumbel_argmax_ref(args)) << temperature;
      if (temperature < 1e-29f) {
        EXPECT_EQ(logits[static_cast<std::size_t>(winner)], args.highest);
      }
    }
  }
}

TEST(GumbelArgmax, draws_only_what_the_cut_keeps) {
  auto logits = test::random_values(2000, 3, 2);
  for (const std::size_t i : {20u, 700u, 701u, 1900u}) logits[i] = 1.5f;
  for (std::uint32_t position = 0; position < 300; ++position) {
    GumbelArgmaxArgs args = args_of(logits, position);
    args.cut = {.least = 1.5f, .last = 700};
    const Index winner = gumbel_argmax(args);
    EXPECT_EQ(winner, gumbel_argmax_ref(args));
    EXPECT_TRUE(args.cut.keeps(logits[static_cast<std::size_t>(winner)], winner));
  }
}

TEST(GumbelArgmax, never_draws_masked_tokens_and_reports_a_row_without_others) {
  std::vector<float> logits(150, -kInfinity);
  GumbelArgmaxArgs args = args_of(logits);
  args.highest = 0;
  EXPECT_EQ(gumbel_argmax(args), -1);
  args.count = 0;
  EXPECT_EQ(gumbel_argmax(args), -1);
  logits[131] = -3e38f;
  EXPECT_EQ(gumbel_argmax(args_of(logits)), 131);
}

// Chi-square of 40,000 draws against the softmax, 5 degrees of freedom, error probability 1e-6.
TEST(GumbelArgmax, follows_the_softmax_at_the_temperature) {
  const std::vector<float> logits = {0.0f, 1.0f, -2.0f, 0.5f, -0.5f, 1.5f};
  constexpr double kTemperature = 0.75;
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size());
  for (std::uint32_t position = 0; position < kDraws; ++position) {
    GumbelArgmaxArgs args = args_of(logits, position);
    args.temperature = kTemperature;
    ++counts[static_cast<std::size_t>(gumbel_argmax(args))];
  }
  double total = 0, chi2 = 0;
  for (const float logit : logits) total += std::exp(logit / kTemperature);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double expected = kDraws * std::exp(logits[i] / kTemperature) / total;
    chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi2, 35.9);
}

TEST(GumbelArgmax, does_not_read_past_the_row) {
  const test::GuardedFloats row(test::random_values(77, 1, 3));
  const float highest = *std::max_element(row.data(), row.data() + 77);
  const GumbelArgmaxArgs args{.logits = row.data(), .count = 77, .highest = highest};
  EXPECT_EQ(gumbel_argmax(args), gumbel_argmax_ref(args));
}

TEST(GumbelArgmax, refuses_a_bad_temperature_or_maximum) {
  const std::vector<float> logits = {1, 2};
  GumbelArgmaxArgs args = args_of(logits);
  for (const float bad : {0.0f, -1.0f, test::kNan, kInfinity}) {
    args.temperature = bad;
    EXPECT_NE(test::error_of([&] { gumbel_argmax(args); }).find("temperature"), std::string::npos);
  }
  args.temperature = 1;
  args.highest = kInfinity;
  EXPECT_NE(test::error_of([&] { gumbel_argmax(args); }).find("largest"), std::string::npos);
}

// Words of one position: each token has its own, and so has each position, choice and seed.
TEST(GumbelNoise, no_two_tokens_positions_choices_or_seeds_share_it) {
  std::set<double> values;
  std::size_t drawn = 0;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
    for (const std::uint32_t position : {0u, 1u, 70000u}) {
      for (const std::uint32_t choice : {0u, 1u}) {
        const GumbelKey key{.seed = seed, .position = position, .choice = choice};
        for (Index token = 0; token < 1000; ++token, ++drawn) {
          values.insert(gumbel_noise(key, token));
        }
      }
    }
  }
  EXPECT_EQ(values.size(), drawn);
}

// Correlations of exp(-exp(-G)), which is uniform: within 5.3 standard deviations of 0, an error
// probability of 1e-7 each.
TEST(GumbelNoise, of_neighbors_is_uncorrelated) {
  constexpr Index kDraws = 60000;
  const auto uniform = [](std::uint32_t position, Index token) {
    const GumbelKey key{.seed = 4, .position = position};
    return std::exp(-std::exp(-gumbel_noise(key, token))) - 0.5;
  };
  for (const Index step : {1, 16, 64, 1024}) {
    double along = 0;
    for (Index token = 0; token < kDraws; ++token) {
      along += uniform(9, token) * uniform(9, token + step);
    }
    EXPECT_LT(std::abs(along) * 12 / std::sqrt(kDraws), 5.3) << step;
  }
  double across = 0;
  for (Index token = 0; token < kDraws; ++token) across += uniform(1, token) * uniform(2, token);
  EXPECT_LT(std::abs(across) * 12 / std::sqrt(kDraws), 5.3);
}

// The winner often owes its place to its noise, not to its logit: here thousands of tokens are far
// below the largest, and together weigh as much.
TEST(GumbelArgmax, finds_winners_far_below_the_largest_logit) {
  std::vector<float> logits(20000, 0.0f);
  logits[777] = std::log(20000.0f);
  int unlikely = 0;
  for (std::uint32_t position = 0; position < 200; ++position) {
    const GumbelArgmaxArgs args = args_of(logits, position);
    const Index winner = gumbel_argmax(args);
    ASSERT_EQ(winner, gumbel_argmax_ref(args)) << position;
    unlikely += winner != 777;
  }
  EXPECT_NEAR(unlikely, 100, 40);  // 5.6 standard deviations
}

TEST(GumbelArgmax, does_not_depend_on_the_alignment_of_the_row) {
  const auto logits = test::random_values(1000, 15, 3);
  for (std::size_t shift = 1; shift < 16; ++shift) {
    std::vector<float> moved(shift, 0.0f);
    moved.insert(moved.end(), logits.begin(), logits.end());
    GumbelArgmaxArgs args = args_of(logits, 5);
    const Index expected = gumbel_argmax(args);
    args.logits = moved.data() + shift;
    EXPECT_EQ(gumbel_argmax(args), expected) << shift;
  }
}

// The noise of a token belongs to the token: removing others changes a draw only to the benefit of
// what remains.
TEST(GumbelArgmax, the_winner_also_wins_among_fewer_tokens) {
  const auto logits = test::random_values(900, 16, 2);
  for (std::uint32_t position = 0; position < 100; ++position) {
    GumbelArgmaxArgs args = args_of(logits, position);
    const Index winner = gumbel_argmax(args);
    auto fewer = logits;
    for (std::size_t i = 0; i < fewer.size(); i += 2) {
      if (static_cast<Index>(i) != winner) fewer[i] = -kInfinity;
    }
    args.logits = fewer.data();
    EXPECT_EQ(gumbel_argmax(args), winner);
    args.count = winner + 1;
    EXPECT_EQ(gumbel_argmax(args), winner);
  }
}

TEST(GumbelArgmax, takes_every_seed_position_and_choice) {
  constexpr std::uint32_t kLast = 0xffffffffu;
  const auto logits = test::random_values(500, 17, 3);
  for (const std::uint64_t seed :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{kLast} << 32}) {
    for (const std::uint32_t position : {0u, kLast - 1, kLast}) {
      for (const std::uint32_t choice : {0u, kLast}) {
        GumbelArgmaxArgs args = args_of(logits);
        args.key = {.seed = seed, .position = position, .choice = choice};
        EXPECT_EQ(gumbel_argmax(args), gumbel_argmax_ref(args)) << seed << " " << position;
      }
    }
  }
}

TEST(GumbelArgmax, refuses_a_negative_count) {
  const std::string error = test::error_of([] { gumbel_argmax({.count = -1}); });
  EXPECT_NE(error.find("expected 0 to 2^31 logits, got -1"), std::string::npos) << error;
}

}  // namespace
}  // namespace hone::kernels
