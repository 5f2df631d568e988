// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/allocate/knapsack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hone/core/philox.h"
#include "tests/support/error_of.h"

namespace hone::compress {
namespace {

using hone::test::refusal;
using testing::HasSubstr;

Index bytes_of(const std::vector<FormatCost>& chosen) {
  Index bytes = 0;
  for (const FormatCost& cost : chosen) bytes += cost.bytes;
  return bytes;
}

double loss_of(const std::vector<FormatCost>& chosen) {
  double loss = 0;
  for (const FormatCost& cost : chosen) loss += cost.loss;
  return loss;
}

// The least loss of all choices within a budget, by trying them all.
double least_loss(const std::vector<MatrixGroup>& groups, Index budget, std::size_t from = 0) {
  if (from == groups.size()) return 0;
  double least = HUGE_VAL;
  for (const FormatCost& cost : groups[from].costs) {
    if (cost.bytes > budget) continue;
    least = std::min(least, cost.loss + least_loss(groups, budget - cost.bytes, from + 1));
  }
  return least;
}

std::vector<MatrixGroup> random_groups(std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<MatrixGroup> groups;
  for (int g = 0; g < 5; ++g) {
    MatrixGroup& group = groups.emplace_back();
    group.name = std::to_string(g);
    for (int f = 0; f < 4; ++f) {
      const auto bytes = static_cast<Index>(1 + random.below(100));
      group.costs.push_back(
          {std::to_string(f), bytes, 50.0 / static_cast<double>(bytes) * (0.5 + random.uniform())});
    }
  }
  return groups;
}

TEST(LowerHull, keeps_what_a_line_between_two_others_does_not_beat) {
  const auto hull = lower_hull({{"e", 50, 0.5},
                                {"a", 10, 8},
                                {"c", 30, 5},
                                {"b", 20, 4},
                                {"twin", 20, 4},
                                {"d", 40, 1},
                                {"worse", 60, 2}});
  std::vector<std::string> names;
  for (const FormatCost& cost : hull) names.push_back(cost.format);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "d", "e"}));
  EXPECT_EQ(lower_hull({{"only", 3, 1}}).size(), 1u);
}

TEST(ChooseFormats, is_the_best_choice_for_the_bytes_that_it_uses) {
  Index exact = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto groups = random_groups(seed);
    for (Index budget = 40; budget <= 500; budget += 46) {
      double smallest = 0;
      for (const MatrixGroup& group : groups)
        smallest += static_cast<double>(lower_hull(group.costs).front().bytes);
      if (smallest > static_cast<double>(budget)) continue;
      const auto chosen = choose_formats(groups, budget);
      ASSERT_LE(bytes_of(chosen), budget);
      // A step that does not fit is left out for ones with a worse slope, so a part of the budget
      // may be lost, but never more than the largest step.
      const double best = least_loss(groups, budget);
      ASSERT_GE(loss_of(chosen), best - 1e-12);
      exact += loss_of(chosen) <= best * (1 + 1e-9) ? 1 : 0;
      EXPECT_LE(loss_of(chosen), least_loss(groups, std::max<Index>(budget - 100, 0)) + 1e-12);
    }
  }
  EXPECT_GT(exact, 150);
}

TEST(ChooseFormats, spends_more_only_to_lose_less) {
  const auto groups = random_groups(7);
  double before = HUGE_VAL;
  for (Index budget = 250; budget <= 600; budget += 50) {
    const double loss = loss_of(choose_formats(groups, budget));
    EXPECT_LE(loss, before);
    before = loss;
  }
}

TEST(ChooseFormats, names_the_least_budget_and_groups_without_a_format) {
  const std::vector<MatrixGroup> groups{{"a", {}, {{"x", 3'000'000, 1}, {"y", 5'000'000, 0}}},
                                        {"b", {}, {{"x", 1'000'000, 2}}}};
  EXPECT_THAT(refusal([&] { static_cast<void>(choose_formats(groups, 3'999'999)); }),
              HasSubstr("4 MB"));
  EXPECT_EQ(choose_formats(groups, 4'000'000).front().format, "x");
  EXPECT_EQ(choose_formats(groups, 6'000'000).front().format, "y");
  EXPECT_THAT(refusal([&] {
                static_cast<void>(choose_formats({{"c", {}, {}}}, 1));
              }),
              HasSubstr("c"));
}

}  // namespace
}  // namespace hone::compress
