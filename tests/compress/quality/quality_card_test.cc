// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/quality/quality_card.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone::compress {
namespace {

double draw_normal(PhiloxStream& random) {
  return std::sqrt(-2 * std::log(random.uniform_double())) *
         std::cos(2 * 3.14159265358979323846 * random.uniform_double());
}

std::vector<float> random_logits(PhiloxStream& random, Index vocab, double scale) {
  std::vector<float> logits(static_cast<std::size_t>(vocab));
  for (float& logit : logits) logit = static_cast<float>(scale * draw_normal(random));
  return logits;
}

// The definition, term by term, in long double.
std::vector<long double> softmax(const std::vector<float>& logits) {
  long double sum = 0;
  std::vector<long double> p;
  for (float logit : logits) p.push_back(std::exp(static_cast<long double>(logit)));
  for (long double value : p) sum += value;
  for (long double& value : p) value /= sum;
  return p;
}

PairedScore score_of(const std::vector<float>& model, const std::vector<float>& base,
                     std::uint32_t target) {
  const auto p = softmax(model), q = softmax(base);
  PairedScore score{.log_probability = static_cast<double>(std::log(p[target])),
                    .baseline_log_probability = static_cast<double>(std::log(q[target]))};
  for (std::size_t i = 0; i < q.size(); ++i) {
    score.kl += static_cast<double>(q[i] * std::log(q[i] / p[i]));
  }
  score.same_top =
      std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
  return score;
}

TEST(QualityCard, of_a_model_against_itself_is_perfect) {
  PhiloxStream random(4);
  QualityAccumulator accumulator;
  for (int i = 0; i < 3000; ++i) {
    const auto logits = random_logits(random, 64, 2);
    accumulator.add(score_of(logits, logits, random.below(64)));
  }
  const QualityCard card = accumulator.finish(9000);
  ASSERT_TRUE(card.comparison);
  EXPECT_EQ(card.comparison->kl_mean.value, 0);
  EXPECT_EQ(card.comparison->kl_max, 0);
  EXPECT_EQ(card.comparison->top1_agreement.value, 1);
  EXPECT_EQ(card.comparison->perplexity_ratio.value, 1);
  EXPECT_EQ(card.comparison->perplexity_ratio.low, 1);
  EXPECT_EQ(card.comparison->perplexity_ratio.high, 1);
  EXPECT_EQ(card.comparison->delta_p_rms, 0);
  EXPECT_NEAR(*card.comparison->log_probability_correlation, 1, 1e-12);
}

TEST(QualityCard, matches_an_independent_double_loop) {
  PhiloxStream random(5);
  QualityAccumulator accumulator;
  double nll = 0, base_nll = 0, delta = 0, squares = 0, agree = 0;
  std::vector<double> divergences;  // of each token
  constexpr int kTokens = 2000;
  for (int i = 0; i < kTokens; ++i) {
    auto base = random_logits(random, 100, 2), model = base;
    for (float& logit : model) logit += static_cast<float>(0.3 * draw_normal(random));
    const std::uint32_t target = random.below(100);
    const PairedScore score = score_of(model, base, target);
    accumulator.add(score);
    nll -= score.log_probability;
    base_nll -= score.baseline_log_probability;
    divergences.push_back(score.kl);
    const double difference =
        std::exp(score.log_probability) - std::exp(score.baseline_log_probability);
    delta += difference;
    squares += difference * difference;
    agree += score.same_top;
  }
  const QualityCard card = accumulator.finish(7777);
  const double mean = nll / kTokens, base_mean = base_nll / kTokens;
  EXPECT_NEAR(card.nll, mean, 1e-9);
  EXPECT_NEAR(card.perplexity.value, std::exp(mean), 1e-9 * std::exp(mean));
  EXPECT_NEAR(*card.bits_per_byte, nll / std::log(2.0) / 7777, 1e-9);
  ASSERT_TRUE(card.comparison);
  EXPECT_NEAR(card.comparison->perplexity_ratio.value, std::exp(mean - base_mean), 1e-9);
  EXPECT_NEAR(card.comparison->baseline_nll, base_mean, 1e-9);
  std::ranges::sort(divergences);
  EXPECT_NEAR(card.comparison->kl_mean.value,
              std::accumulate(divergences.begin(), divergences.end(), 0.0) / kTokens, 1e-9);
  EXPECT_NEAR(card.comparison->kl_max, divergences.back(), 1e-9);
  const auto between = [&](double quantile, double value) {  // its two neighbors
    const auto at = static_cast<std::size_t>(quantile * kTokens);
    EXPECT_GE(value, divergences[at - 1] - 1e-9) << quantile;
    EXPECT_LE(value, divergences[at] + 1e-9) << quantile;
  };
  between(0.5, card.comparison->kl_p50);
  between(0.9, card.comparison->kl_p90);
  between(0.99, card.comparison->kl_p99);
  EXPECT_NEAR(card.comparison->delta_p_mean, delta / kTokens, 1e-9);
  EXPECT_NEAR(card.comparison->delta_p_rms, std::sqrt(squares / kTokens), 1e-9);
  EXPECT_EQ(card.comparison->top1_agreement.value, agree / kTokens);
  EXPECT_LT(card.comparison->perplexity_ratio.low, card.comparison->perplexity_ratio.value);
  EXPECT_GT(card.comparison->perplexity_ratio.high, card.comparison->perplexity_ratio.value);
  EXPECT_GT(*card.comparison->log_probability_correlation, 0.9);
  EXPECT_LT(*card.comparison->log_probability_correlation, 0.999);
}

TEST(QualityCard, json_has_the_promised_fields_and_null_for_the_unknown) {
  QualityAccumulator accumulator;
  accumulator.add(PairedScore{.log_probability = -1, .baseline_log_probability = -1});
  const Json json = to_json(accumulator.finish(0));
  for (const char* field : {"tokens", "nll", "perplexity", "bits_per_byte", "kl_mean", "kl_p99",
                            "top1_agreement", "ppl_ratio", "ppl_ratio_ci"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_TRUE(json["bits_per_byte"].is_null());
  EXPECT_TRUE(json["log_probability_correlation"].is_null());
}

TEST(QualityCard, refuses_mixed_and_empty_use_and_what_is_no_distribution) {
  const PairedScore score{.log_probability = -1, .baseline_log_probability = -2};
  QualityAccumulator with, without;
  EXPECT_THROW(with.finish(1), Error);
  with.add(score);
  EXPECT_THROW(with.add(-1.0), Error);
  without.add(-1.0);
  EXPECT_THROW(without.add(score), Error);
  EXPECT_FALSE(without.finish(1).comparison);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(without.add(kNan), Error);
  EXPECT_THROW(with.add(PairedScore{.log_probability = kNan, .baseline_log_probability = -1}),
               Error);
  EXPECT_THROW(with.add(PairedScore{.log_probability = -1, .baseline_log_probability = kNan}),
               Error);
  EXPECT_EQ(with.tokens() + without.tokens(), 2) << "a refused token is not added";
}

// 1000 synthetic runs of an autocorrelated series with known mean. The share that covers it is
// binomial; 93-97 % is 2.9 standard deviations around 95 %.
double coverage_share(Index blocks) {
  int covered = 0;
  for (std::uint64_t run = 0; run < 1000; ++run) {
    PhiloxStream random(run, 77);
    std::vector<double> samples(static_cast<std::size_t>(blocks * 64));
    double state = draw_normal(random);
    for (double& sample : samples) {
      state = 0.6 * state + 0.8 * draw_normal(random);
      sample = 0.01 + 0.05 * state;
    }
    BootstrapOptions options;
    options.block = 64;
    options.seed = run;
    const MeanInterval interval = bootstrap_mean(samples, options);
    covered += interval.low <= 0.01 && 0.01 <= interval.high ? 1 : 0;
  }
  return covered / 1000.0;
}

TEST(BlockBootstrap, interval_covers_the_truth_as_often_as_it_says) {
  for (Index blocks : {10, 20, 100}) {
    const double share = coverage_share(blocks);
    EXPECT_GE(share, 0.93) << blocks;
    EXPECT_LE(share, 0.97) << blocks;
  }
}

TEST(BlockBootstrap, keeps_the_correlation_that_single_draws_would_lose) {
  std::vector<double> samples;
  for (int i = 0; i < 6400; ++i) samples.push_back(i / 640 % 2 == 0 ? 1.0 : -1.0);
  BootstrapOptions blocks, singles;
  blocks.block = 320;
  singles.block = 1;
  const MeanInterval wide = bootstrap_mean(samples, blocks);
  const MeanInterval narrow = bootstrap_mean(samples, singles);
  EXPECT_GT(wide.high - wide.low, 5 * (narrow.high - narrow.low));
  EXPECT_EQ(wide.blocks, 20);
}

TEST(BlockBootstrap, depends_on_its_seed_alone) {
  PhiloxStream random(6);
  std::vector<double> samples(5000);
  for (double& sample : samples) sample = draw_normal(random);
  const MeanInterval a = bootstrap_mean(samples), b = bootstrap_mean(samples);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  BootstrapOptions other;
  other.seed = 2;
  EXPECT_NE(bootstrap_mean(samples, other).low, a.low);
  const std::vector<double> one = {3};
  EXPECT_EQ(bootstrap_mean(one).low, 3);
}

TEST(BlockBootstrap, quantiles_interpolate) {
  std::vector<double> samples = {4, 1, 3, 2};
  EXPECT_EQ(take_quantile(samples, 0), 1);
  EXPECT_EQ(take_quantile(samples, 1), 4);
  EXPECT_EQ(take_quantile(samples, 0.5), 2.5);
  EXPECT_NEAR(take_quantile(samples, 0.1), 1.3, 1e-15);
}

}  // namespace
}  // namespace hone::compress
