// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/matching.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "hone/core/error.h"

#include "tests/support/error_of.h"

namespace hone::paco {
namespace {

using kernels::AssignmentMethod;
using testing::HasSubstr;
using torch::Tensor;
using Permutation = std::vector<Index>;

constexpr std::array kExact{AssignmentMethod::Auto, AssignmentMethod::Table,
                            AssignmentMethod::Hungarian};
constexpr std::array kAll{AssignmentMethod::Auto, AssignmentMethod::Table,
                          AssignmentMethod::Hungarian, AssignmentMethod::Greedy,
                          AssignmentMethod::Sinkhorn};

Tensor costs_of(const std::vector<double>& values, Index parts) {
  return at::tensor(values, at::kDouble).view({1, parts, parts});
}

Permutation row_of(const Tensor& permutations, Index image = 0) {
  const Tensor row = permutations[image].contiguous();
  return {row.data_ptr<Index>(), row.data_ptr<Index>() + row.numel()};
}

Permutation identity(Index parts) {
  Permutation all(parts);
  std::iota(all.begin(), all.end(), Index{0});
  return all;
}

double total_of(const Tensor& cost, const Permutation& permutation) {
  const auto at = cost.accessor<double, 2>();
  double total = 0;
  for (Index k = 0; k < std::ssize(permutation); ++k) total += at[k][permutation[k]];
  return total;
}

// The best permutation; if totals are equal, the first in lexicographic order.
Permutation by_brute_force(const Tensor& cost) {
  Permutation next = identity(cost.size(0)), best = next;
  do {
    if (total_of(cost, next) < total_of(cost, best)) best = next;
  } while (std::next_permutation(next.begin(), next.end()));
  return best;
}

TEST(Matching, finds_the_least_total) {
  const Tensor three = costs_of({4, 1, 3, 2, 0, 5, 3, 2, 2}, 3);
  const Tensor two = costs_of({1, 2, 2, 100}, 2);
  for (const AssignmentMethod method : kExact) {
    EXPECT_EQ(row_of(match_parts(three, method)), (Permutation{1, 0, 2}));
    EXPECT_EQ(row_of(match_parts(two, method)), (Permutation{1, 0}));
  }
  EXPECT_EQ(row_of(composed::match_by_table(three)), (Permutation{1, 0, 2}));
  EXPECT_EQ(row_of(composed::match_by_table(two)), (Permutation{1, 0}));
  EXPECT_EQ(row_of(match_parts(two, AssignmentMethod::Greedy)), (Permutation{0, 1}));
}

TEST(Matching, keeps_the_order_where_all_costs_are_equal) {
  for (Index parts = 1; parts <= 9; ++parts) {
    const Tensor costs = at::full({2, parts, parts}, 0.3, at::kDouble);
    for (const AssignmentMethod method : kAll) {
      if (method == AssignmentMethod::Table && parts > kernels::kMaxTableParts) continue;
      EXPECT_EQ(row_of(match_parts(costs, method), 1), identity(parts));
    }
    if (parts > kernels::kMaxTableParts) continue;
    EXPECT_EQ(row_of(composed::match_by_table(costs), 1), identity(parts));
  }
}

TEST(Matching, equals_brute_force) {
  at::manual_seed(1);
  for (const bool tied : {false, true}) {
    const Tensor costs =
        tied ? at::randint(0, 4, {1000, 4, 4}, at::kDouble) : at::rand({1000, 4, 4}, at::kDouble);
    const Tensor by_kernel = match_parts(costs, AssignmentMethod::Auto);
    const Tensor by_hungarian = match_parts(costs, AssignmentMethod::Hungarian);
    EXPECT_TRUE(composed::match_by_table(costs).equal(by_kernel));
    for (Index image = 0; image < costs.size(0); ++image) {
      const Permutation want = by_brute_force(costs[image]);
      EXPECT_EQ(row_of(by_kernel, image), want);
      EXPECT_NEAR(total_of(costs[image], row_of(by_hungarian, image)), total_of(costs[image], want),
                  1e-12);
    }
  }
}

TEST(Matching, gives_the_same_by_operators_and_by_the_kernel) {
  at::manual_seed(2);
  for (Index parts = 1; parts <= kernels::kMaxTableParts; ++parts) {
    for (const Tensor& costs : {at::randn({50, parts, parts}, at::kDouble),
                                at::randint(0, 3, {50, parts, parts}, at::kDouble) / 10,
                                at::zeros({0, parts, parts}, at::kDouble)}) {
      const Tensor want = match_parts(costs, AssignmentMethod::Table);
      EXPECT_TRUE(composed::match_by_table(costs).equal(want)) << parts;
      const Tensor turned = costs.transpose(1, 2);
      EXPECT_TRUE(match_parts(turned, AssignmentMethod::Auto)
                      .equal(match_parts(turned.contiguous(), AssignmentMethod::Auto)));
      EXPECT_TRUE(
          composed::match_by_table(turned).equal(match_parts(turned, AssignmentMethod::Auto)));
    }
  }
}

TEST(Matching, finds_permuted_parts_again) {
  at::manual_seed(3);
  const Tensor z1 = at::randn({1, 4, 16});
  Permutation want = identity(4);
  do {
    const Tensor z2 = at::empty_like(z1);
    for (Index k = 0; k < 4; ++k) z2[0][want[k]] = z1[0][k] * 3;  // the cosine ignores lengths
    const Tensor costs = cosine_costs(z1, z2);
    for (const AssignmentMethod method : kAll) EXPECT_EQ(row_of(match_parts(costs, method)), want);
    EXPECT_NEAR(total_of(costs[0], want), 0, 1e-12);
  } while (std::next_permutation(want.begin(), want.end()));
}

TEST(Matching, measures_cosines) {
  const Tensor z1 = at::tensor({1.0, 0.0, 3.0, 4.0, 0.0, 0.0}, at::kDouble).view({1, 3, 2});
  const Tensor z2 = at::tensor({2.0, 0.0, 0.0, 5.0, -1.0, 0.0}, at::kDouble).view({1, 3, 2});
  const Tensor want = costs_of({0, 1, 2, 0.4, 0.2, 1.6, 1, 1, 1}, 3);
  EXPECT_LE((cosine_costs(z1, z2) - want).abs().max().item<double>(), 1e-15);
  // Below the least norm a part counts as shorter than it is.
  EXPECT_NEAR(cosine_costs(z1 * 1e-13, z2)[0][0][0].item<double>(), 0.9, 1e-15);

  at::manual_seed(4);
  const Tensor a = at::randn({5, 4, 7}).requires_grad_(true), b = at::randn({5, 4, 7});
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Tensor u = a.to(type), v = b.to(type), costs = cosine_costs(u, v);
    EXPECT_EQ(costs.scalar_type(), at::kDouble);
    EXPECT_FALSE(costs.requires_grad());
    const Tensor want_costs = 1 - at::cosine_similarity(u.detach().to(at::kDouble).unsqueeze(2),
                                                        v.to(at::kDouble).unsqueeze(1), 3, 1e-12);
    EXPECT_LE((costs - want_costs).abs().max().item<double>(), 1e-14);
  }
}

TEST(Matching, keeps_the_order_of_parts_that_are_all_orthogonal) {
  const Tensor z1 = at::tensor({1.0, 0.0, -1.0, 0.0}).view({1, 2, 2});
  const Tensor z2 = at::tensor({0.0, 1.0, 0.0, -1.0}).view({1, 2, 2});
  EXPECT_EQ(row_of(match_parts(cosine_costs(z1, z2), AssignmentMethod::Auto)), identity(2));
  const Tensor zeros = at::zeros({1, 4, 8});
  EXPECT_EQ(row_of(match_parts(cosine_costs(zeros, zeros), AssignmentMethod::Auto)), identity(4));
}

TEST(Matching, takes_more_parts_than_a_table_has) {
  at::manual_seed(5);
  const Tensor costs = at::rand({3, 8, 8}, at::kDouble);
  const Tensor got = match_parts(costs, AssignmentMethod::Auto);
  for (Index image = 0; image < 3; ++image) {
    EXPECT_NEAR(total_of(costs[image], row_of(got, image)),
                total_of(costs[image], by_brute_force(costs[image])), 1e-12);
  }
}

TEST(Matching, switches_at_epoch) {
  const MatchSchedule schedule{.metric = MatchMetric::Mahalanobis, .warmup_epochs = 2};
  EXPECT_EQ(schedule.at(0), MatchMetric::Cosine);
  EXPECT_EQ(schedule.at(1), MatchMetric::Cosine);
  EXPECT_EQ(schedule.at(2), MatchMetric::Mahalanobis);
  const MatchSchedule without{.metric = MatchMetric::Mahalanobis, .warmup_epochs = 0};
  EXPECT_EQ(without.at(0), MatchMetric::Mahalanobis);
  const MatchSchedule cosine{.metric = MatchMetric::Cosine, .warmup_epochs = 2};
  EXPECT_EQ(cosine.at(100), MatchMetric::Cosine);
}

TEST(Matching, refuses_other_costs) {
  const auto refuse = [](const Tensor& costs, AssignmentMethod method, const std::string& message) {
    EXPECT_THAT(hone::test::refusal([&] { match_parts(costs, method); }), HasSubstr(message));
  };
  const AssignmentMethod any = AssignmentMethod::Auto;
  refuse({}, any, "[match_parts] expected fp64 costs, got an undefined tensor");
  refuse(at::zeros({1, 2, 2}), any, "[match_parts] expected fp64 costs, got Float");
  refuse(at::zeros({1, 2, 3}, at::kDouble), any,
         "[match_parts] expected costs [images, parts, parts], got [1, 2, 3]");
  refuse(at::zeros({2, 2}, at::kDouble), any,
         "[match_parts] expected costs [images, parts, parts], got [2, 2]");
  refuse(at::zeros({1, 0, 0}, at::kDouble), any,
         "[match_parts] expected costs [images, parts, parts], got [1, 0, 0]");
  refuse(at::zeros({1, 8, 8}, at::kDouble), AssignmentMethod::Table, "expected parts <= 7, got 8");
  refuse(at::full({1, 2, 2}, std::nan(""), at::kDouble), any, "got nan at [0, 0, 0]");
  EXPECT_THAT(hone::test::refusal([] {
                composed::match_by_table(at::zeros({1, 8, 8}, at::kDouble));
              }),
              HasSubstr("[match_by_table] expected parts <= 7, got 8"));
}

TEST(Matching, refuses_other_views) {
  const Tensor z = at::zeros({2, 3, 4});
  const auto refuse = [](const Tensor& z1, const Tensor& z2, const std::string& message) {
    EXPECT_THAT(hone::test::refusal([&] { cosine_costs(z1, z2); }),
                HasSubstr("[cosine_costs] " + message));
  };
  refuse(z, {}, "A view is an undefined tensor.");
  refuse(z, z.to(at::kLong), "expected floating-point parts, got Float and Long");
  refuse(z, z.narrow(1, 0, 2),
         "expected two views [images, parts, dim], got [2, 3, 4] and [2, 2, 4]");
  refuse(z[0], z[0], "expected two views [images, parts, dim], got [3, 4] and [3, 4]");
}

}  // namespace
}  // namespace hone::paco
