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

namespace hone::infer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::set<TokenId> ids_of(const std::vector<Candidate>& candidates) {
  std::set<TokenId> ids;
  for (const Candidate& candidate : candidates) ids.insert(candidate.id);
  return ids;
}

std::vector<float> random_logits(Index count, std::uint64_t seed) {
  PhiloxStream stream(seed);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& logit : logits) logit = 10 * stream.uniform() - 5;
  return logits;
}

TEST(Argmax, ties_go_to_the_lowest_id) {
  const std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(argmax(logits), 1);
  EXPECT_EQ(argmax(std::vector<float>{-kInfinity, -kInfinity, -5}), 2);
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
  apply_bias_and_penalties(logits, sampling, history);
  // 0: prompt only, positive: halved. 1: negative: doubled, then 0.5 + 0.25. 2: halved, 0.5 + 2 *
  // 0.25.
  EXPECT_EQ(logits, (std::vector<float>{1, -4.75f, 0, -2, 4}));
}

TEST(Filters, top_k_keeps_the_k_likeliest_and_breaks_ties_by_id) {
  SamplingParams sampling;
  sampling.top_k = 2;
  EXPECT_EQ(ids_of(filter_candidates(std::vector<float>{1, 5, 5, 5, 0}, sampling)),
            (std::set<TokenId>{1, 2}));
}

TEST(Filters, top_p_keeps_the_crossing_token) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.3f), std::log(0.5f), std::log(0.2f)};
  SamplingParams sampling;
  for (const auto& [mass, expected] : std::map<float, std::set<TokenId>>{
           {0.01f, {1}}, {0.49f, {1}}, {0.6f, {1, 0}}, {0.81f, {1, 0, 2}}, {1.0f, {1, 0, 2}}}) {
    sampling.top_p = mass;
    EXPECT_EQ(ids_of(filter_candidates(logits, sampling)), expected) << mass;
  }
}

TEST(Filters, top_p_equals_a_full_sort_on_large_vocabularies) {
  const auto logits = random_logits(5000, 3);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
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
    EXPECT_EQ(ids_of(filter_candidates(logits, sampling)), expected) << mass;
  }
}

TEST(Filters, min_p_is_relative_to_the_likeliest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  SamplingParams sampling;
  sampling.min_p = 0.5f;
  EXPECT_EQ(ids_of(filter_candidates(logits, sampling)), (std::set<TokenId>{0, 1}));
  sampling.min_p = 1;
  EXPECT_EQ(ids_of(filter_candidates(logits, sampling)), (std::set<TokenId>{0}));
}

TEST(Filters, masked_tokens_are_gone_and_an_empty_set_is_an_error) {
  std::vector<float> logits = {1, 2, 3};
  mask_tokens(logits, std::vector<TokenId>{2});
  EXPECT_EQ(ids_of(filter_candidates(logits, {})), (std::set<TokenId>{0, 1}));
  mask_tokens(logits, std::vector<TokenId>{0, 1});
  EXPECT_THROW(filter_candidates(logits, {}), Error);
}

TEST(Sampler, a_fully_masked_row_is_an_error_at_any_temperature) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler({.temperature = temperature}, {});
    std::vector<float> logits(3, -kInfinity);
    EXPECT_THROW(sampler.choose(logits, 0, {}), Error);
    logits = {1, 2, 3};
    EXPECT_THROW(sampler.choose(logits, 0, std::vector<TokenId>{0, 1, 2}), Error);
    logits = {-kInfinity, 2, -kInfinity};
    EXPECT_EQ(sampler.choose(logits, 0, {}), 1);
  }
}

TEST(Filters, temperature_comes_before_top_p) {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.4f)};
  SamplingParams sampling{.temperature = 0.1f, .top_p = 0.9f};
  EXPECT_EQ(ids_of(filter_candidates(logits, sampling)), (std::set<TokenId>{0}));
  sampling.temperature = 1;
  EXPECT_EQ(ids_of(filter_candidates(logits, sampling)), (std::set<TokenId>{0, 1}));
}

TEST(Draw, follows_the_softmax_law) {
  const std::vector<double> law = {0.5, 0.25, 0.15, 0.08, 0.02};
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < law.size(); ++i) {
    candidates.push_back({static_cast<float>(std::log(law[i])) + 7, static_cast<TokenId>(i)});
  }
  constexpr int kDraws = 100000;
  std::vector<int> counts(law.size());
  for (int position = 0; position < kDraws; ++position) {
    ++counts[static_cast<std::size_t>(draw_gumbel(candidates, {.seed = 5}, position))];
  }
  double chi2 = 0;
  for (std::size_t i = 0; i < law.size(); ++i) {
    const double expected = law[i] * kDraws;
    chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi2, 33.4);  // 4 degrees of freedom, error probability 1e-6
}

TEST(Draw, does_not_depend_on_the_order_of_candidates_or_on_unlikely_ones) {
  const auto logits = random_logits(300, 9);
  std::vector<Candidate> forward = filter_candidates(logits, {});
  std::vector<Candidate> backward(forward.rbegin(), forward.rend());
  for (Index position = 0; position < 200; ++position) {
    EXPECT_EQ(draw_gumbel(forward, {.seed = 1}, position),
              draw_gumbel(backward, {.seed = 1}, position));
  }
}

TEST(Draw, seed_choice_and_position_each_change_it) {
  const std::vector<Candidate> uniform = filter_candidates(std::vector<float>(1000, 0.0f), {});
  const auto text = [&](const SamplingParams& sampling, Index begin) {
    std::vector<TokenId> ids;
    for (Index p = begin; p < begin + 20; ++p) ids.push_back(draw_gumbel(uniform, sampling, p));
    return ids;
  };
  const auto base = text({.seed = 1}, 0);
  EXPECT_EQ(text({.seed = 1}, 0), base);
  EXPECT_NE(text({.seed = 2}, 0), base);
  EXPECT_NE(text({.seed = 1, .choice = 1}, 0), base);
  EXPECT_NE(text({.seed = 1}, 20), base);
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
  EXPECT_NE(message({.top_k = 101}).find("top_k"), std::string::npos);
  EXPECT_NE(message({.top_p = 0}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.min_p = 2}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = 0}).find("repetition"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{100, 1}}}).find("logit_bias"), std::string::npos);
}

}  // namespace
}  // namespace hone::infer
