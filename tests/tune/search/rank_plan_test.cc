// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/rank_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hone/core/philox.h"
#include "tests/support/error_of.h"

namespace hone::tune {
namespace {

using test::refusal;

// Falling errors over rising costs, convex or not, and now and then an option that is beaten.
std::vector<LayerCurve> random_layers(std::uint64_t seed, std::size_t layers) {
  PhiloxStream random(seed);
  std::vector<LayerCurve> curves;
  for (std::size_t l = 0; l < layers; ++l) {
    LayerCurve curve{"layer" + std::to_string(l), 0.1 + random.uniform_double(), {}};
    double cost = random.uniform_double(), error = 3;
    for (const Index rank : {16, 32, 64, 128, 0}) {
      curve.options.push_back({rank, cost, rank == 0 ? 0 : error});
      cost += random.uniform_double() - 0.1;
      error *= 0.2 + 0.9 * random.uniform_double();
      cost = std::max(cost, 0.0);
    }
    curves.push_back(curve);
  }
  return curves;
}

const RankOption& option_of(const LayerCurve& layer, Index rank) {
  return *std::ranges::find(layer.options, rank, &RankOption::rank);
}

// The cheapest of all choices.
std::optional<RankPlan> brute_force(const std::vector<LayerCurve>& layers, double budget) {
  std::optional<RankPlan> best;
  const std::size_t options = layers[0].options.size();
  const auto choices = static_cast<std::size_t>(
      std::pow(static_cast<double>(options), static_cast<double>(layers.size())) + 0.5);
  for (std::size_t choice = 0; choice < choices; ++choice) {
    RankPlan plan;
    std::size_t rest = choice;
    for (const LayerCurve& layer : layers) {
      const RankOption& option = layer.options[rest % options];
      rest /= options;
      plan.ranks.push_back(option.rank);
      plan.cost += option.cost;
      plan.error += layer.sensitivity * option.error;
    }
    if (plan.error <= budget && (!best || plan.cost < best->cost)) best = plan;
  }
  return best;
}

// The largest cost of a step on the lower convex hull, which is wrapped like a gift: from the
// cheapest option on, the next one is where most error is saved for the cost.
double largest_step(const LayerCurve& layer) {
  RankOption at = layer.options[0];
  for (const RankOption& option : layer.options) {
    if (std::pair(option.cost, option.error) < std::pair(at.cost, at.error)) at = option;
  }
  double largest = 0;
  for (;;) {
    double steepest = 0;
    RankOption next = at;
    for (const RankOption& option : layer.options) {
      const double slope = (at.error - option.error) / (option.cost - at.cost);
      if (option.cost <= at.cost || slope <= steepest) continue;
      steepest = slope;
      next = option;
    }
    if (steepest == 0) return largest;
    largest = std::max(largest, next.cost - at.cost);
    at = next;
  }
}

TEST(RankPlan, stays_close_to_brute_force) {
  int exact = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::vector<LayerCurve> layers = random_layers(seed, 4);
    const double budget = PhiloxStream(seed, 1).uniform_double() * 4;
    const auto best = brute_force(layers, budget);
    const auto plan = plan_ranks(layers, budget);
    ASSERT_TRUE(best && plan);
    double cost = 0, error = 0, step = 0;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const RankOption& option = option_of(layers[l], plan->ranks[l]);
      cost += option.cost;
      error += layers[l].sensitivity * option.error;
      step = std::max(step, largest_step(layers[l]));
    }
    EXPECT_NEAR(plan->cost, cost, 1e-12);
    EXPECT_NEAR(plan->error, error, 1e-12);
    EXPECT_LE(plan->error, budget);
    EXPECT_GE(plan->cost, best->cost - 1e-12);
    // The optimum is between the two choices where the bisection ends: they differ by one step.
    EXPECT_LE(plan->cost, best->cost + step);
    exact += plan->cost <= best->cost + 1e-12 ? 1 : 0;
  }
  EXPECT_GE(exact, 380);  // the exchanges leave few gaps
  RecordProperty("exact", exact);
}

TEST(RankPlan, finds_what_a_hull_alone_misses) {
  // The option of rank 32 lies above the hull of both layers, and two of it are the optimum.
  const std::vector<RankOption> options{{16, 1, 10}, {32, 6, 4.9}, {0, 10, 0}};
  const std::vector<LayerCurve> layers{{"a", 1, options}, {"b", 1, options}};
  const auto plan = plan_ranks(layers, 9.9);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->cost, brute_force(layers, 9.9)->cost);
}

TEST(RankPlan, follows_the_budget) {
  const std::vector<LayerCurve> layers = random_layers(7, 24);
  double before = std::numeric_limits<double>::infinity();
  for (double budget = 0; budget < 40; budget += 0.5) {
    const auto plan = plan_ranks(layers, budget);
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->error, budget);
    EXPECT_LE(plan->cost, before * 1.02);
    before = plan->cost;
  }
  double cheapest = 0;
  for (const LayerCurve& layer : layers) {
    cheapest += std::ranges::min(layer.options, {}, &RankOption::cost).cost;
  }
  EXPECT_NEAR(plan_ranks(layers, std::numeric_limits<double>::infinity())->cost, cheapest, 1e-12);
}

TEST(RankPlan, takes_equal_costs_and_errors) {
  // Equal slopes everywhere, steps without cost, and layers that have one option.
  std::vector<LayerCurve> layers(6, {"same", 1, {{16, 1, 3}, {32, 2, 2}, {64, 3, 1}, {0, 4, 0}}});
  layers.push_back({"free", 1, {{16, 1, 5}, {0, 1, 0}}});
  layers.push_back({"single", 1, {{0, 2, 0.5}}});
  for (int budget = 1; budget <= 18; ++budget) {
    const auto plan = plan_ranks(layers, budget + 0.5);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->cost, 3 + 24 - budget);
    EXPECT_EQ(plan->error, budget + 0.5);
  }
}

TEST(RankPlan, weighs_errors_by_sensitivity) {
  const std::vector<RankOption> options{{16, 1, 1}, {0, 2, 0}};
  const auto plan =
      plan_ranks(std::vector<LayerCurve>{{"calm", 0.1, options}, {"touchy", 10, options}}, 0.5);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ranks, (std::vector<Index>{16, 0}));
  EXPECT_DOUBLE_EQ(plan->error, 0.1);
}

TEST(RankPlan, says_when_no_choice_keeps_the_budget) {
  const std::vector<LayerCurve> layers{{"a", 2, {{16, 1, 1}, {32, 2, 0.5}}}};
  EXPECT_FALSE(plan_ranks(layers, 0.9));
  EXPECT_EQ(plan_ranks(layers, 1.0)->ranks, std::vector<Index>{32});
  EXPECT_TRUE(plan_ranks({}, 0)->ranks.empty());
}

TEST(RankPlan, refuses_bad_curves) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto message = [](LayerCurve layer) {
    return refusal([&] { plan_ranks(std::vector<LayerCurve>{layer}, 1); });
  };
  EXPECT_EQ(message({"a", 1, {{16, 1, 1}}}), "");
  EXPECT_NE(message({"a", 1, {}}).find("'a' has no options"), std::string::npos);
  EXPECT_NE(message({"a", 1, {{16, 1, 1}, {16, 2, 0}}}).find("twice"), std::string::npos);
  EXPECT_NE(message({"a", 1, {{-1, 1, 1}}}).find("negative rank"), std::string::npos);
  for (const double bad : {-1.0, std::nan(""), kInf}) {
    EXPECT_NE(message({"a", bad, {{16, 1, 1}}}).find("sensitivity"), std::string::npos);
    EXPECT_NE(message({"a", 1, {{16, bad, 1}}}).find("cost"), std::string::npos);
    EXPECT_NE(message({"a", 1, {{16, 1, bad}}}).find("an error"), std::string::npos);
  }
  EXPECT_NE(refusal([] { plan_ranks({}, -1); }), "");
  EXPECT_NE(refusal([] { plan_ranks({}, std::nan("")); }), "");
}

TEST(RanksBelowDense, save_storage_at_every_rank) {
  EXPECT_EQ(ranks_below_dense(768, 3072), (std::vector<Index>{16, 32, 64, 128, 256, 512}));
  EXPECT_EQ(ranks_below_dense(1024, 1024), (std::vector<Index>{16, 32, 64, 128, 256}));
  EXPECT_TRUE(ranks_below_dense(1, 4096).empty());
  EXPECT_TRUE(ranks_below_dense(35, 35).empty());  // 0.9 h = 15.75
  for (Index in = 1; in < 3000; in += 97) {
    for (Index out = 1; out < 3000; out += 89) {
      for (const Index rank : ranks_below_dense(in, out)) {
        EXPECT_LT(rank * (in + out), in * out);
      }
    }
  }
  EXPECT_NE(refusal([] { ranks_below_dense(0, 5); }), "");
}

}  // namespace
}  // namespace hone::tune
