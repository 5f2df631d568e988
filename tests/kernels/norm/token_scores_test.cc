// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/token_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::kNan;
using Values = std::vector<float>;
using Targets = std::vector<std::int32_t>;

// Around the vectors of every instruction set, and a real vocabulary's size.
constexpr Index kVocabs[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 512, 32000};

std::vector<double> scores_of(const Values& logits, const Targets& targets,
                              Executor& executor = serial_executor()) {
  std::vector<double> scores(targets.size(), -1.0);
  const auto rows = std::ssize(targets), vocab = std::ssize(logits) / std::max<Index>(1, rows);
  score_tokens({rows, vocab, logits.data(), targets.data(), scores.data()}, executor);
  return scores;
}

std::vector<TokenPair> pairs_of(const Values& logits, const Values& baseline,
                                const Targets& targets, Executor& executor = serial_executor()) {
  std::vector<TokenPair> pairs(targets.size());
  const auto rows = std::ssize(targets), vocab = std::ssize(logits) / std::max<Index>(1, rows);
  compare_tokens({rows, vocab, logits.data(), baseline.data(), targets.data(), pairs.data()},
                 executor);
  return pairs;
}

// The definition, term by term, in long double.
std::vector<long double> softmax(const Values& logits) {
  long double sum = 0;
  std::vector<long double> p;
  for (const float logit : logits) p.push_back(std::exp(static_cast<long double>(logit)));
  for (const long double value : p) sum += value;
  for (long double& value : p) value /= sum;
  return p;
}

TEST(TokenScores, match_the_definition) {
  for (const Index vocab : kVocabs) {
    const auto seed = static_cast<std::uint64_t>(vocab);
    const Values model = test::random_values(vocab, seed, 9);
    const Values base = test::random_values(vocab, seed + 1, 9);
    const std::int32_t target = static_cast<std::int32_t>(vocab * 2 / 3);
    const auto p = softmax(model), q = softmax(base);
    long double kl = 0;
    for (std::size_t i = 0; i < q.size(); ++i) kl += q[i] * std::log(q[i] / p[i]);
    const TokenPair pair = pairs_of(model, base, {target}).front();
    EXPECT_NEAR(pair.log_probability, static_cast<double>(std::log(p[target])), 1e-12) << vocab;
    EXPECT_NEAR(pair.baseline_log_probability, static_cast<double>(std::log(q[target])), 1e-12);
    EXPECT_NEAR(pair.kl, static_cast<double>(kl), 1e-11) << vocab;
    EXPECT_EQ(scores_of(model, {target}).front(), pair.log_probability) << "the same bits";
    const auto top = [](const auto& row) { return std::ranges::max_element(row) - row.begin(); };
    EXPECT_EQ(pair.same_top, top(p) == top(q)) << vocab;
  }
}

TEST(TokenScores, match_the_reference_on_rows_of_every_shape) {
  for (const auto& [rows, vocab] : test::kRowShapes) {
    const Values model = test::random_values(rows * vocab, 3, 20);
    const Values base = test::random_values(rows * vocab, 4, 20);
    Targets targets;
    for (Index row = 0; row < rows; ++row)
      targets.push_back(static_cast<std::int32_t>(row % vocab));
    std::vector<TokenPair> wanted(targets.size());
    compare_tokens_ref({rows, vocab, model.data(), base.data(), targets.data(), wanted.data()});
    std::vector<double> alone(targets.size());
    score_tokens_ref({rows, vocab, model.data(), targets.data(), alone.data()});
    const auto scores = scores_of(model, targets);
    const auto pairs = pairs_of(model, base, targets);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_NEAR(scores[i], alone[i], 1e-12);
      EXPECT_NEAR(pairs[i].log_probability, wanted[i].log_probability, 1e-12);
      EXPECT_NEAR(pairs[i].baseline_log_probability, wanted[i].baseline_log_probability, 1e-12);
      EXPECT_NEAR(pairs[i].kl, wanted[i].kl, 1e-11);
      EXPECT_EQ(pairs[i].same_top, wanted[i].same_top);
    }
  }
}

TEST(TokenScores, a_row_has_the_same_bits_alone_and_on_any_number_of_threads) {
  constexpr Index kRows = 37, kVocab = 1003;
  const Values model = test::random_values(kRows * kVocab, 5, 8);
  const Values base = test::random_values(kRows * kVocab, 6, 8);
  Targets targets(kRows, 17);
  const auto scores = scores_of(model, targets);
  const auto pairs = pairs_of(model, base, targets);
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(scores_of(model, targets, pool), scores);
    const auto again = pairs_of(model, base, targets, pool);
    for (std::size_t i = 0; i < pairs.size(); ++i) ASSERT_EQ(again[i].kl, pairs[i].kl);
  }
  const Values row(model.begin() + 30 * kVocab, model.begin() + 31 * kVocab);
  EXPECT_EQ(scores_of(row, {17}).front(), scores[30]);
}

TEST(TokenScores, equal_rows_differ_by_exactly_nothing) {
  for (const Index vocab : kVocabs) {
    const Values logits = test::random_values(vocab, 7, 30);
    const TokenPair pair = pairs_of(logits, logits, {0}).front();
    EXPECT_EQ(pair.kl, 0) << vocab;
    EXPECT_EQ(pair.log_probability, pair.baseline_log_probability);
    EXPECT_TRUE(pair.same_top);
  }
}

TEST(TokenScores, a_constant_added_to_a_row_changes_nothing) {
  const Values logits = test::random_integers(100, 8, 9);
  Values raised = logits;
  for (float& value : raised) value += 4096;
  const TokenPair pair = pairs_of(raised, logits, {3}).front();
  EXPECT_NEAR(pair.kl, 0, 1e-12);
  EXPECT_NEAR(pair.log_probability, pair.baseline_log_probability, 1e-12);
}

TEST(TokenScores, of_two_tokens_are_the_logistic_function) {
  for (const double gap : {-80.0, -20.0, -1.0, 0.0, 0.5, 3.0, 20.0, 80.0}) {
    const Values logits = {static_cast<float>(gap), 0};
    EXPECT_NEAR(scores_of(logits, {0}).front(), -std::log1p(std::exp(-gap)),
                1e-14 * (1 + -gap * (gap < 0)))
        << gap;
  }
}

// KL(p || q) <= log 2 for distributions p and q = (p + u) / 2 that are given by their logits, and
// it vanishes only with p = u.
TEST(TokenScores, divergence_from_a_mixture_is_bounded) {
  for (const Index vocab : kVocabs) {
    if (vocab < 2) continue;
    const Values logits = test::random_values(vocab, 11, 12);
    const auto p = softmax(logits);
    Values mixture;
    for (const long double value : p) {
      mixture.push_back(
          static_cast<float>(std::log(value + 1.0L / static_cast<long double>(vocab))));
    }
    const double kl = pairs_of(mixture, logits, {0}).front().kl;
    EXPECT_GT(kl, 0) << vocab;
    EXPECT_LE(kl, std::log(2.0) + 1e-6) << vocab;
  }
}

TEST(TokenScores, renaming_the_tokens_changes_nothing) {
  for (const Index vocab : kVocabs) {
    const Values model = test::random_values(vocab, 12, 8),
                 base = test::random_values(vocab, 13, 8);
    const Values model_back(model.rbegin(), model.rend()), base_back(base.rbegin(), base.rend());
    const TokenPair pair = pairs_of(model, base, {0}).front();
    const TokenPair back =
        pairs_of(model_back, base_back, {static_cast<std::int32_t>(vocab - 1)}).front();
    EXPECT_NEAR(pair.kl, back.kl, 1e-11 * (1 + pair.kl)) << vocab;
    EXPECT_NEAR(pair.log_probability, back.log_probability, 1e-12);
    EXPECT_EQ(pair.same_top, back.same_top);
  }
}

// Equal logits of which one is raised.
TEST(TokenScores, of_one_raised_token_are_the_closed_forms) {
  for (const Index vocab : kVocabs) {
    for (const double rise : {-5.0, -0.25, 0.25, 5.0}) {
      const auto n = static_cast<double>(vocab);
      const Values base(static_cast<std::size_t>(vocab), 2.0f);
      Values model = base;
      model.back() += static_cast<float>(rise);
      const double lse = std::log((n - 1 + std::exp(rise)) / n);  // less that of the baseline
      const auto target = static_cast<std::int32_t>(vocab - 1);
      const TokenPair pair = pairs_of(model, base, {target}).front();
      EXPECT_NEAR(pair.baseline_log_probability, -std::log(n), 1e-12) << vocab;
      EXPECT_NEAR(pair.log_probability, rise - lse - std::log(n), 1e-12) << vocab;
      EXPECT_NEAR(pair.kl, lse - rise / n, 1e-12) << vocab;
      EXPECT_EQ(pair.same_top, vocab == 1 || rise < 0) << vocab;
    }
  }
}

TEST(TokenScores, ties_at_the_top_go_to_the_lowest_id) {
  for (const Index vocab : {2, 9, 40}) {
    Values first(static_cast<std::size_t>(vocab), 0.0f), last = first, both = first;
    first.front() = last.back() = both.front() = both.back() = 1;
    EXPECT_TRUE(pairs_of(first, both, {0}).front().same_top) << vocab;
    EXPECT_FALSE(pairs_of(last, both, {0}).front().same_top) << vocab;
  }
}

TEST(TokenScores, large_logits_neither_overflow_nor_vanish) {
  EXPECT_EQ(scores_of({3e38f, 0, -3e38f}, {0}).front(), 0);
  EXPECT_EQ(scores_of({3e38f, 0, -3e38f}, {2}).front(), -2 * static_cast<double>(3e38f));
  EXPECT_NEAR(scores_of({1e4f, 1e4f, -1e4f}, {1}).front(), -std::log(2.0), 1e-12);
}

TEST(TokenScores, masked_tokens_have_probability_zero) {
  for (const std::size_t width : {3u, 21u}) {
    Values model(width, -kInfinity), base = model, narrow = model;
    model[0] = base[1] = narrow[0] = 0;
    model[1] = base[0] = 1;
    EXPECT_TRUE(std::isfinite(pairs_of(model, base, {0}).front().kl)) << width;
    EXPECT_EQ(scores_of(model, {2}).front(), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(pairs_of(narrow, base, {0}).front().kl, std::numeric_limits<double>::infinity());
  }
}

TEST(TokenScores, what_is_no_distribution_gives_nan_and_harms_no_other_row) {
  for (const std::size_t vocab : {1u, 5u, 20u, 35u}) {
    for (std::size_t at = 0; at < vocab; ++at) {
      for (const float bad : {kNan, -kNan, kInfinity}) {
        Values logits = test::random_values(static_cast<Index>(2 * vocab), 9, 3);
        const Values good = logits;
        logits[vocab + at] = bad;
        const auto scores = scores_of(logits, {0, 0});
        EXPECT_TRUE(std::isnan(scores[1])) << vocab << " at " << at << ": " << bad;
        EXPECT_EQ(scores[0], scores_of(good, {0, 0})[0]);
        const auto of_model = pairs_of(logits, good, {0, 0}),
                   of_base = pairs_of(good, logits, {0, 0});
        EXPECT_TRUE(std::isnan(of_model[1].log_probability));
        EXPECT_TRUE(std::isnan(of_base[1].baseline_log_probability));
        EXPECT_TRUE(std::isnan(of_model[1].kl) && std::isnan(of_base[1].kl));
        EXPECT_EQ(of_model[0].kl, 0);
      }
    }
    EXPECT_TRUE(std::isnan(scores_of(Values(vocab, -kInfinity), {0}).front()));
  }
}

TEST(TokenScores, refuse_targets_outside_of_the_vocabulary_before_writing) {
  const Values logits = {0, 1, 2, 3};
  for (const std::int32_t bad : {-1, 2}) {
    const Targets targets = {1, bad};
    std::vector<double> scores = {7, 7};
    const std::string message = test::error_of([&] {
      score_tokens({2, 2, logits.data(), targets.data(), scores.data()});
    });
    EXPECT_NE(message.find("target"), std::string::npos) << message;
    EXPECT_EQ(scores, (std::vector<double>{7, 7}));
    EXPECT_THROW(pairs_of(logits, logits, targets), Error);
  }
  EXPECT_THROW(score_tokens({1, 0, logits.data(), Targets{0}.data(), nullptr}), Error);
  EXPECT_THROW(score_tokens({-1, 2, logits.data(), nullptr, nullptr}), Error);
}

TEST(TokenScores, read_nothing_behind_a_row) {
  for (const Index vocab : kVocabs) {
    const Values values = test::random_values(vocab, 10, 3);
    const test::GuardedFloats model(values), base(values);
    const std::int32_t target = 0;
    TokenPair pair;
    compare_tokens({1, vocab, model.data(), base.data(), &target, &pair});
    EXPECT_EQ(pair.kl, 0);
  }
}

}  // namespace
}  // namespace hone::kernels
