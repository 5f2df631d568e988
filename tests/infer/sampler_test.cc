// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "tests/support/error_of.h"

namespace hone::infer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float highest_of(const std::vector<float>& logits) {
  return *std::max_element(logits.begin(), logits.end());
}

// The tokens that the filters keep.
std::set<TokenId> kept(const std::vector<float>& logits, const SamplingParams& sampling) {
  const kernels::TokenCut cut = filter_tokens(logits, highest_of(logits), sampling);
  std::set<TokenId> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool is_masked = logits[i] == -kInfinity;
    if (!is_masked && cut.keeps(logits[i], static_cast<Index>(i))) {
      ids.insert(static_cast<TokenId>(i));
    }
  }
  return ids;
}

TokenId choose(std::vector<float> logits, const SamplingParams& sampling, Index position = 0) {
  return Sampler(sampling, {}).choose(logits, position, {});
}

std::vector<float> random_logits(Index count, std::uint64_t seed) {
  PhiloxStream stream(seed);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& logit : logits) logit = 10 * stream.uniform() - 5;
  return logits;
}

// Most likely first, the lowest ids on ties.
std::vector<TokenId> sorted_ids(const std::vector<float>& logits) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  return order;
}

TEST(Greedy, ties_go_to_the_lowest_id) {
  EXPECT_EQ(choose({1, 3, 3, 2}, {.temperature = 0}), 1);
  std::vector<float> logits(200, -2.0f);
  logits[130] = logits[131] = -1.0f;
  EXPECT_EQ(choose(logits, {.temperature = 0}), 130);
}

TEST(Penalties, act_on_prompt_and_output_as_named) {
  std::vector<float> logits = {2, -2, 2, -2, 1};
  const std::vector<TokenId> prompt = {0, 1};
  TokenHistory history(prompt);
  history.add_output(1);
  history.add_output(2);
  history.add_output(2);
  SamplingParams sampling;
  sampling.repetition_penalty = 2;
  sampling.presence_penalty = 0.5f;
  sampling.frequency_penalty = 0.25f;
  sampling.logit_bias = {{4, 3}};
  apply_logit_bias(logits, sampling.logit_bias);
  apply_penalties(logits, sampling, history);
  // 0: prompt only, positive: halved. 1: negative: doubled, then 0.5 + 0.25. 2: halved, 0.5 + 2 *
  // 0.25.
  EXPECT_EQ(logits, (std::vector<float>{1, -4.75f, 0, -2, 4}));
}

TEST(Penalties, and_bias_keep_finite_logits_finite_and_masked_ones_masked) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  std::vector<float> logits = {kLargest, -kLargest, -kInfinity};
  SamplingParams sampling;
  sampling.repetition_penalty = 0.1f;
  const std::vector<TokenId> prompt = {0, 1, 2};
  apply_penalties(logits, sampling, TokenHistory(prompt));
  EXPECT_EQ(logits[0], kLargest);
  sampling.repetition_penalty = 10;
  logits[1] = -kLargest;
  apply_penalties(logits, sampling, TokenHistory(prompt));
  EXPECT_EQ(logits[1], -kLargest);
  const LogitBias bias[] = {{2, 100}};
  apply_logit_bias(logits, bias);
  EXPECT_EQ(logits[2], -kInfinity);
}

TEST(TokenHistory, output_that_is_taken_back_leaves_no_trace) {
  const std::vector<TokenId> prompt = {1};
  TokenHistory history(prompt);
  for (const TokenId id : {1, 2, 2, 3}) history.add_output(id);
  history.truncate_output(2);
  EXPECT_EQ(history.counts().at(1).in_output, 1);
  EXPECT_EQ(history.counts().at(2).in_output, 1);
  EXPECT_EQ(history.counts().count(3), 0u);
  history.truncate_output(0);
  EXPECT_EQ(history.counts().size(), 1u);
  EXPECT_TRUE(history.counts().at(1).in_prompt);
  EXPECT_THROW(history.truncate_output(1), Error);
}

TEST(Filters, top_k_keeps_the_k_likeliest_and_breaks_ties_by_id) {
  SamplingParams sampling;
  sampling.top_k = 2;
  EXPECT_EQ(kept({1, 5, 5, 5, 0}, sampling), (std::set<TokenId>{1, 2}));
}

// Logits of few distinct values, so that most cuts are at a tie; k on both sides of a 64th of the
// vocabulary, where the way of selection changes.
TEST(Filters, top_k_equals_a_full_sort) {
  auto logits = random_logits(5000, 8);
  for (float& logit : logits) logit = std::round(4 * logit) / 4;
  logits[3] = -0.0f;
  logits[4] = 0.0f;
  const auto order = sorted_ids(logits);
  for (const Index k : {1, 2, 17, 78, 79, 80, 500, 4999}) {
    SamplingParams sampling;
    sampling.top_k = k;
    EXPECT_EQ(kept(logits, sampling), std::set<TokenId>(order.begin(), order.begin() + k)) << k;
  }
}

TEST(Filters, top_p_keeps_the_crossing_token) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.3f), std::log(0.5f), std::log(0.2f)};
  SamplingParams sampling;
  for (const auto& [mass, expected] : std::map<float, std::set<TokenId>>{
           {1e-30f, {1}}, {0.49f, {1}}, {0.6f, {1, 0}}, {0.81f, {1, 0, 2}}, {1.0f, {1, 0, 2}}}) {
    sampling.top_p = mass;
    EXPECT_EQ(kept(logits, sampling), expected) << mass;
  }
}

TEST(Filters, top_p_equals_a_full_sort_on_large_vocabularies) {
  const auto logits = random_logits(5000, 3);
  const auto order = sorted_ids(logits);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (const float mass : {0.001f, 0.3f, 0.9f, 0.999f}) {
    std::set<TokenId> expected;
    double reached = 0;
    for (const TokenId id : order) {
      expected.insert(id);
      reached += std::exp(static_cast<double>(logits[id])) / total;
      if (reached >= mass) break;
    }
    SamplingParams sampling;
    sampling.top_p = mass;
    EXPECT_EQ(kept(logits, sampling), expected) << mass;
  }
}

TEST(Filters, top_p_sees_what_top_k_left) {
  // Probabilities 0.4, 0.3, 0.2, 0.1; of the first two alone 0.57 and 0.43.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  EXPECT_EQ(kept(logits, {.top_p = 0.5f}), (std::set<TokenId>{0, 1}));
  EXPECT_EQ(kept(logits, {.top_k = 2, .top_p = 0.5f}), (std::set<TokenId>{0}));
  EXPECT_EQ(kept(logits, {.top_k = 2, .top_p = 0.99f}), (std::set<TokenId>{0, 1}));
}

TEST(Filters, min_p_is_relative_to_the_likeliest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  SamplingParams sampling;
  sampling.min_p = 0.5f;
  EXPECT_EQ(kept(logits, sampling), (std::set<TokenId>{0, 1}));
  sampling.min_p = 1;
  EXPECT_EQ(kept(logits, sampling), (std::set<TokenId>{0}));
}

TEST(Filters, temperature_comes_before_top_p_and_min_p) {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.4f)};
  for (SamplingParams sampling : {SamplingParams{.top_p = 0.9f}, SamplingParams{.min_p = 0.1f}}) {
    sampling.temperature = 0.1f;
    EXPECT_EQ(kept(logits, sampling), (std::set<TokenId>{0}));
    sampling.temperature = 1;
    EXPECT_EQ(kept(logits, sampling), (std::set<TokenId>{0, 1}));
  }
}

TEST(Filters, keep_the_likeliest_token_at_every_temperature) {
  for (const float temperature : {1e-45f, 1e-39f, 1e-20f, 1.0f, 5.0f}) {
    for (const float scale : {1e-38f, 1.0f, 6e37f}) {
      auto logits = random_logits(300, 12);
      for (float& logit : logits) logit *= scale;
      const SamplingParams sampling{
          .temperature = temperature, .top_k = 200, .top_p = 1e-9f, .min_p = 1.0f};
      EXPECT_EQ(kept(logits, sampling), (std::set<TokenId>{sorted_ids(logits)[0]}))
          << temperature << " " << scale;
    }
  }
}

TEST(Distribution, is_the_softmax_of_what_the_filters_keep) {
  const auto logits = random_logits(500, 21);
  const SamplingParams sampling{.temperature = 0.7f, .top_k = 100, .top_p = 0.95f, .min_p = 0.001f};
  const std::set<TokenId> ids = kept(logits, sampling);
  double total = 0;
  for (const TokenId id : ids) total += std::exp(logits[id] / double{0.7f});
  std::vector<double> distribution(logits.size());
  write_distribution(logits, highest_of(logits), sampling, distribution);
  for (std::size_t i = 0; i < distribution.size(); ++i) {
    const bool is_kept = ids.contains(static_cast<TokenId>(i));
    EXPECT_NEAR(distribution[i], is_kept ? std::exp(logits[i] / double{0.7f}) / total : 0, 1e-14);
  }
  write_distribution(logits, highest_of(logits), {.temperature = 0}, distribution);
  EXPECT_EQ(distribution[static_cast<std::size_t>(sorted_ids(logits)[0])], 1);
  EXPECT_EQ(std::accumulate(distribution.begin(), distribution.end(), 0.0), 1);
}

TEST(Sampler, a_masked_row_is_an_error_and_never_a_token) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler({.temperature = temperature}, {});
    std::vector<float> logits = {1, 2, 3};
    EXPECT_EQ(sampler.choose(logits, 0, std::vector<TokenId>{1, 2}), 0);
    logits = {1, 2, 3};
    const std::string error = hone::test::error_of([&] {
      sampler.choose(logits, 0, std::vector<TokenId>{0, 1, 2});
    });
    EXPECT_NE(error.find("Every token is masked"), std::string::npos);
    EXPECT_EQ(sampler.history().output_size(), 1);
  }
}

TEST(Sampler, logits_that_are_not_finite_are_an_error_of_the_model) {
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    for (const float temperature : {0.0f, 1.0f}) {
      auto logits = random_logits(99, 1);
      logits[77] = bad;
      const std::string error = hone::test::error_of(
          [&] { Sampler({.temperature = temperature}, {}).choose(logits, 0, {}); });
      EXPECT_NE(error.find("[model] expected finite logits"), std::string::npos) << error;
      EXPECT_NE(error.find("for token 77"), std::string::npos) << error;
    }
  }
}

// Error probability 1e-6 with 4 degrees of freedom.
TEST(Sampler, draws_follow_the_distribution_of_the_whole_chain) {
  const std::vector<float> logits = {1.0f, 0.2f, 0.4f, -0.5f, -1.0f, -6.0f, 0.9f};
  const SamplingParams sampling{.logit_bias = {{3, 0.8f}},
                                .repetition_penalty = 1.5f,
                                .presence_penalty = 0.1f,
                                .temperature = 0.8f,
                                .top_k = 6,
                                .min_p = 0.02f,
                                .seed = 5};
  const std::vector<TokenId> prompt = {0}, masked = {6};
  std::vector<double> distribution(logits.size());
  auto copy = logits;
  Sampler(sampling, prompt).write_distribution(copy, masked, distribution);
  constexpr int kDraws = 100000;
  std::vector<int> counts(logits.size());
  Sampler sampler(sampling, prompt);
  for (int position = 0; position < kDraws; ++position) {
    copy = logits;
    ++counts[static_cast<std::size_t>(sampler.choose(copy, position, masked))];
    sampler.history().truncate_output(0);
  }
  double chi2 = 0;
  for (std::size_t i = 0; i < distribution.size(); ++i) {
    const double expected = distribution[i] * kDraws;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0);
    } else {
      chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  EXPECT_EQ(std::ranges::count(distribution, 0.0), 2);  // the masked token, and one below min-p
  EXPECT_LT(chi2, 33.4);
}

TEST(Sampler, seed_choice_and_position_each_change_the_draw) {
  const std::vector<float> uniform(1000, 0.0f);
  const auto text = [&](const SamplingParams& sampling, Index begin) {
    std::vector<TokenId> ids;
    for (Index p = begin; p < begin + 20; ++p) ids.push_back(choose(uniform, sampling, p));
    return ids;
  };
  const auto base = text({.seed = 1}, 0);
  EXPECT_EQ(text({.seed = 1}, 0), base);
  EXPECT_NE(text({.seed = 2}, 0), base);
  EXPECT_NE(text({.seed = 1, .choice = 1}, 0), base);
  EXPECT_NE(text({.seed = 1}, 20), base);
}

// Whether a filter is on or off, or how many tokens it keeps, does not move the noise of the rest.
TEST(Sampler, a_draw_changes_only_if_its_token_is_cut) {
  const auto logits = random_logits(2000, 5);
  int same = 0;
  for (Index position = 0; position < 200; ++position) {
    const TokenId all = choose(logits, {.seed = 3}, position);
    for (const SamplingParams& sampling :
         {SamplingParams{.top_k = 300, .seed = 3}, SamplingParams{.top_p = 0.7f, .seed = 3}}) {
      if (!kept(logits, sampling).contains(all)) continue;
      EXPECT_EQ(choose(logits, sampling, position), all);
      ++same;
    }
  }
  EXPECT_GT(same, 100);
}

TEST(TopLogprobs, equal_a_full_sort) {
  const auto logits = random_logits(100, 4);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const auto top = top_logprobs(logits, 7, 3.0);
  ASSERT_EQ(top.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(top[i].id, order[i]);
    EXPECT_DOUBLE_EQ(top[i].logprob, logits[order[i]] - 3.0);
  }
  EXPECT_TRUE(top_logprobs(logits, 0, 0).empty());
}

TEST(Validate, names_the_parameter_out_of_range) {
  const auto message = [](const SamplingParams& sampling) {
    try {
      validate(sampling, 100);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_NE(message({.temperature = -1}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.temperature = std::nanf("")}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_k = -1}).find("top_k"), std::string::npos);
  EXPECT_EQ(message({.top_k = 101}), "accepted") << "all tokens, as for transformers";
  EXPECT_NE(message({.top_p = 0}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.min_p = 2}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = 0}).find("repetition"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{100, 1}}}).find("logit_bias"), std::string::npos);
}

}  // namespace
}  // namespace hone::infer
