// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/draft_depth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone::infer {
namespace {

// Steps of base + row * rows seconds, measured for every number of rows.
StepCosts linear_costs(double base, double row, Index sequences = 1) {
  StepCosts costs;
  for (Index rows = 1; rows <= 64; ++rows) {
    costs.observe(rows, sequences, base + row * static_cast<double>(rows));
  }
  return costs;
}

TEST(ExpectedTokens, is_the_geometric_sum) {
  for (const double a : {0.0, 0.2, 0.5, 0.93}) {
    for (Index k = 0; k <= kMaxDraftDepth; ++k) {
      const double closed = (1 - std::pow(a, static_cast<double>(k + 1))) / (1 - a);
      EXPECT_NEAR(expected_tokens(a, k), closed, 1e-12);
    }
  }
  EXPECT_DOUBLE_EQ(expected_tokens(1, 7), 8);
}

TEST(StepCosts, interpolate_what_was_measured_and_follow_the_machine) {
  StepCosts costs;
  EXPECT_GT(costs.ratio(9, 1, 1), 1);
  costs.observe(1, 1, 2.0);
  costs.observe(5, 1, 4.0);
  EXPECT_DOUBLE_EQ(costs.ratio(5, 1, 1), 2);
  EXPECT_DOUBLE_EQ(costs.ratio(3, 1, 1), 1.5);
  EXPECT_GT(costs.ratio(9, 1, 1), 2);
  EXPECT_DOUBLE_EQ(costs.ratio(4, 4, 1), 1);
  for (int i = 0; i < 100; ++i) costs.observe(5, 1, 8.0);
  EXPECT_NEAR(costs.ratio(5, 1, 1), 4, 1e-6);
  costs.observe(9, 1, 1.0);  // less than fewer rows: noise
  EXPECT_EQ(costs.ratio(9, 5, 1), 1);
}

TEST(StepCosts, ignore_times_that_are_none) {
  StepCosts costs = linear_costs(1, 0.5);
  const double before = costs.ratio(7, 1, 1);
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    costs.observe(7, 1, bad);
  }
  EXPECT_EQ(costs.ratio(7, 1, 1), before);
  EXPECT_THROW(costs.ratio(1, 2, 1), Error);
}

TEST(StepCosts, keep_batches_of_different_size_apart) {
  StepCosts costs = linear_costs(1, 0);
  costs.observe(8, 8, 1.0);
  costs.observe(12, 8, 3.0);
  EXPECT_DOUBLE_EQ(costs.ratio(12, 8, 8), 3);
  EXPECT_DOUBLE_EQ(costs.ratio(12, 8, 1), 1);
}

TEST(StepCosts, tell_the_seconds_of_measured_steps) {
  StepCosts costs;
  EXPECT_FALSE(costs.seconds(1, 1).has_value());
  costs.observe(1, 1, 2.0);
  EXPECT_DOUBLE_EQ(costs.seconds(1, 1).value(), 2);
  EXPECT_FALSE(costs.seconds(1, 2).has_value());
}

TEST(DraftGain, is_the_published_formula_and_counts_the_other_rows) {
  const StepCosts costs = linear_costs(10, 1);
  const double a = 0.8, c = 0.05;
  for (Index k = 0; k <= 8; ++k) {
    const auto depth = static_cast<double>(k);
    const double alone = expected_tokens(a, k) / (c * depth + (11 + depth) / 11);
    EXPECT_NEAR(draft_gain(a, k, costs, {.draft_cost = c}), alone, 1e-12);
  }
  EXPECT_DOUBLE_EQ(draft_gain(a, 0, costs, {}), 1);
  // Seven others emit a token each and wait for the longer step.
  const StepCosts batch = linear_costs(10, 1, 8);
  const StepLoad load{.other_rows = 7, .other_sequences = 7, .other_tokens = 7};
  const double want = (expected_tokens(a, 2) + 7) / (8 * (20.0 / 18));
  EXPECT_NEAR(draft_gain(a, 2, batch, load), want, 1e-12);
}

// Rounds in which each draft is accepted with a fixed probability. Returns the mean depth of the
// last `tail` rounds.
double mean_depth(DraftDepth& depth, double acceptance, const StepCosts& costs,
                  const StepLoad& load, int rounds = 400) {
  PhiloxStream random(8);
  double total = 0;
  for (int n = 0; n < rounds; ++n) {
    const Index k = depth.choose(costs, load);
    EXPECT_GE(k, 0);
    EXPECT_LE(k, kMaxDraftDepth);
    Index accepted = 0;
    while (accepted < k && random.uniform() < acceptance) ++accepted;
    depth.record(std::min(k, accepted + 1), accepted, accepted + 1);
    total += static_cast<double>(k);
  }
  return total / rounds;
}

Index best_depth(double acceptance, const StepCosts& costs, const StepLoad& load) {
  Index best = 0;
  for (Index k = 1; k <= kMaxDraftDepth; ++k) {
    if (draft_gain(acceptance, k, costs, load) > draft_gain(acceptance, best, costs, load))
      best = k;
  }
  return best;
}

TEST(DraftDepth, settles_near_the_depth_that_maximizes_the_gain) {
  const StepCosts costs = linear_costs(10, 1);
  for (const double acceptance : {0.5, 0.7, 0.85}) {
    DraftDepth depth;
    mean_depth(depth, acceptance, costs, {});
    const double settled = mean_depth(depth, acceptance, costs, {});
    EXPECT_NEAR(settled, static_cast<double>(best_depth(acceptance, costs, {})), 1.5);
    EXPECT_NEAR(depth.acceptance(), acceptance, 0.25);
  }
}

TEST(DraftDepth, drafts_deeper_when_drafts_are_better_or_rows_cheaper) {
  DraftDepth good, poor, dear;
  const StepCosts cheap = linear_costs(10, 0.5);
  const double deep = mean_depth(good, 0.9, cheap, {});
  EXPECT_GT(deep, mean_depth(poor, 0.5, cheap, {}));
  EXPECT_GT(deep, mean_depth(dear, 0.9, linear_costs(1, 1), {}));
}

TEST(DraftDepth, is_zero_where_drafts_fail_but_for_rare_probes) {
  DraftDepth depth;
  const StepCosts costs = linear_costs(10, 1);
  mean_depth(depth, 0, costs, {}, 60);
  // Three rounds of two drafts for every 64 tokens.
  EXPECT_LE(mean_depth(depth, 0, costs, {}, 670), 2 * 3.0 / 67 + 0.02);
}

TEST(DraftDepth, is_zero_at_once_in_a_batch_whose_rows_cost_in_full) {
  const StepLoad load{.other_rows = 15, .other_sequences = 15, .other_tokens = 15};
  const StepCosts costs = linear_costs(0, 1, 16);
  DraftDepth depth;
  for (int round = 0; round < 3; ++round) EXPECT_EQ(depth.choose(costs, load), 0);
  EXPECT_EQ(depth.choose(costs, load), 0);
  EXPECT_TRUE(depth.is_off());
}

TEST(DraftDepth, ends_after_three_weak_rounds_and_returns_after_64_tokens) {
  const StepCosts dear = linear_costs(0, 1), cheap = linear_costs(10, 0.1);
  DraftDepth depth;
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(depth.is_off());
    depth.choose(dear, {});
    depth.record(0, 0, 1);
  }
  EXPECT_EQ(depth.choose(dear, {}), 0);
  EXPECT_TRUE(depth.is_off());
  for (int token = 0; token < 64; ++token) {
    EXPECT_EQ(depth.choose(cheap, {}), 0) << token;
    depth.record(0, 0, 1);
  }
  EXPECT_GT(depth.choose(cheap, {}), 0);
  EXPECT_FALSE(depth.is_off());
}

TEST(DraftDepth, begins_with_few_drafts_and_with_the_acceptance_of_others) {
  const StepCosts costs = linear_costs(100, 0.1);
  DraftDepth good(0.75), poor(0.02);
  EXPECT_EQ(good.choose(costs, {}), 2);
  good.record(2, 2, 3);
  EXPECT_GT(good.choose(costs, {}), 2);
  EXPECT_LE(good.choose(costs, {}), 6);
  EXPECT_LT(poor.choose(linear_costs(10, 1), {}), 2);
  EXPECT_DOUBLE_EQ(poor.acceptance(), 0.02);
}

TEST(DraftDepth, probes_only_when_it_may_and_less_often_after_each_failure) {
  const StepCosts costs = linear_costs(10, 1);
  DraftDepth depth;
  mean_depth(depth, 0, costs, {}, 40);
  ASSERT_TRUE(depth.is_off());
  std::vector<Index> pauses;
  Index pause = 0;
  for (int round = 0; round < 1500; ++round) {
    const Index k = depth.choose(costs, {});
    depth.record(std::min<Index>(k, 1), 0, 1);
    EXPECT_EQ(depth.is_probing(), k > 0);
    if (k == 0) ++pause;
    if (k > 0 && pause > 0) pauses.push_back(std::exchange(pause, 0));
  }
  ASSERT_GE(pauses.size(), 5u);
  // The first pause began before the loop; each probe is followed by a longer one, up to 256
  // tokens.
  EXPECT_EQ(pauses[1], 128);
  EXPECT_EQ(pauses[2], 256);
  EXPECT_EQ(pauses[3], 256);
  for (int round = 0; round < 600; ++round) {
    EXPECT_EQ(depth.choose(costs, {}, false), 0) << "without leave to probe";
    depth.record(0, 0, 1);
  }
  EXPECT_GT(depth.choose(costs, {}), 0);
}

TEST(DraftDepth, is_not_tried_again_where_good_drafts_would_not_pay) {
  const StepLoad load{.other_rows = 7, .other_sequences = 7, .other_tokens = 7};
  const StepCosts full = linear_costs(0, 1, 8), cheap = linear_costs(100, 0.1, 8);
  DraftDepth depth;
  for (int round = 0; round < 500; ++round) {
    EXPECT_EQ(depth.choose(full, load), 0);
    depth.record(0, 0, 1);
  }
  EXPECT_GT(depth.choose(cheap, load), 0);
}

TEST(DraftDepth, recovers_when_the_text_becomes_predictable_again) {
  const StepCosts costs = linear_costs(10, 0.5);
  DraftDepth depth;
  mean_depth(depth, 0, costs, {}, 300);
  mean_depth(depth, 0.95, costs, {}, 200);
  EXPECT_GT(mean_depth(depth, 0.95, costs, {}, 50), 4);
}

TEST(SpecStats, count_drafts_by_place_and_unexamined_ones_apart) {
  SpecStats stats;
  stats.record(4, 3, 2, 3);
  stats.record(2, 2, 2, 3);
  stats.record(0, 0, 0, 1);
  EXPECT_EQ(stats.rounds, 3);
  EXPECT_EQ(stats.drafted, 6);
  EXPECT_EQ(stats.examined, 5);
  EXPECT_EQ(stats.accepted, 4);
  EXPECT_EQ(stats.emitted, 7);
  EXPECT_EQ(stats.examined_at[2], 1);
  EXPECT_EQ(stats.accepted_at[1], 2);
  EXPECT_EQ(stats.accepted_at[2], 0);
  EXPECT_DOUBLE_EQ(stats.mean_depth(), 2);
  EXPECT_THROW(stats.record(17, 0, 0, 1), Error);
  EXPECT_THROW(stats.record(2, 3, 0, 1), Error);
  EXPECT_THROW(stats.record(2, 1, 2, 3), Error);
}

}  // namespace
}  // namespace hone::infer
