// SPDX-License-Identifier: Apache-2.0
// Assignments by hand, by trying every permutation, by duality and by properties.
#include "hone/kernels/paco/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using testing::HasSubstr;
using Values = std::vector<double>;
using Indices = std::vector<Index>;

constexpr AssignmentMethod kAll[] = {AssignmentMethod::Auto, AssignmentMethod::Table,
                                     AssignmentMethod::Hungarian, AssignmentMethod::Greedy,
                                     AssignmentMethod::Sinkhorn};
constexpr AssignmentMethod kOptimal[] = {AssignmentMethod::Auto, AssignmentMethod::Table,
                                         AssignmentMethod::Hungarian};

struct Assigned {
  Indices perm;
  Values total;
  bool operator==(const Assigned&) const = default;
};

Assigned assigned(AssignmentMethod method, const Values& cost, Index parts,
                  Executor& executor = serial_executor()) {
  const Index batch = static_cast<Index>(cost.size()) / (parts * parts);
  Assigned out{Indices(static_cast<std::size_t>(batch * parts), -1),
               Values(static_cast<std::size_t>(batch), -1)};
  assign(method,
         {.batch = batch,
          .parts = parts,
          .cost = cost.data(),
          .perm = out.perm.data(),
          .total = out.total.data()},
         executor);
  return out;
}

Values random_costs(Index count, std::uint64_t seed, double size = 1) {
  PhiloxStream random(seed);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = size * (2 * random.uniform_double() - 1);
  return values;
}

Indices identity(Index parts) {
  Indices out(static_cast<std::size_t>(parts));
  std::iota(out.begin(), out.end(), Index{0});
  return out;
}

double total_of(const double* cost, const Indices& perm) {
  double total = 0;
  for (std::size_t k = 0; k < perm.size(); ++k)
    total += cost[k * perm.size() + static_cast<std::size_t>(perm[k])];
  return total;
}

// The first permutation in lexicographic order with the least total.
Indices by_brute_force(const double* cost, Index parts) {
  Indices perm = identity(parts), best = perm;
  while (std::next_permutation(perm.begin(), perm.end())) {
    if (total_of(cost, perm) < total_of(cost, best)) best = perm;
  }
  return best;
}

bool is_permutation(Indices perm) {
  std::sort(perm.begin(), perm.end());
  return perm == identity(static_cast<Index>(perm.size()));
}

TEST(Assignment, solves_examples_by_hand) {
  const Values three{4, 1, 3, 2, 0, 5, 3, 2, 2};
  const Values two{1, 2, 2, 100};
  for (const AssignmentMethod method : kOptimal) {
    EXPECT_EQ(assigned(method, three, 3), (Assigned{{1, 0, 2}, {5}}));
    EXPECT_EQ(assigned(method, two, 2), (Assigned{{1, 0}, {4}}));
    EXPECT_EQ(assigned(method, {-3.5}, 1), (Assigned{{0}, {-3.5}}));
  }
  EXPECT_EQ(assigned(AssignmentMethod::Greedy, two, 2), (Assigned{{0, 1}, {101}}));
  EXPECT_EQ(assigned(AssignmentMethod::Sinkhorn, two, 2), (Assigned{{1, 0}, {4}}));
  EXPECT_EQ(assigned(AssignmentMethod::Sinkhorn, three, 3), (Assigned{{1, 0, 2}, {5}}));
}

TEST(Assignment, of_equal_costs_is_the_identity) {
  for (const AssignmentMethod method : kAll) {
    for (Index parts = 1; parts <= kMaxTableParts; ++parts) {
      for (const double height : {0.0, 0.1, -7.0}) {
        const Values cost(static_cast<std::size_t>(parts * parts), height);
        EXPECT_EQ(assigned(method, cost, parts).perm, identity(parts));
      }
    }
  }
}

TEST(Assignment, by_table_takes_the_first_of_equal_permutations) {
  const Index parts = 5;
  PhiloxStream random(3);
  for (int round = 0; round < 200; ++round) {
    Values cost(static_cast<std::size_t>(parts * parts));
    for (double& value : cost) value = random.below(3);  // whole numbers: exact and often equal
    const Assigned got = assigned(AssignmentMethod::Table, cost, parts);
    EXPECT_EQ(got.perm, by_brute_force(cost.data(), parts));
    EXPECT_EQ(assigned(AssignmentMethod::Hungarian, cost, parts).total, got.total);
  }
}

TEST(Assignment, optimal_methods_equal_every_permutation_tried) {
  for (const auto& [parts, count] : {std::pair<Index, Index>{4, 1000}, {2, 50}, {7, 20}}) {
    const Values cost = random_costs(count * parts * parts, 1, 10);
    const Assigned table = assigned(AssignmentMethod::Table, cost, parts);
    EXPECT_EQ(assigned(AssignmentMethod::Hungarian, cost, parts), table);
    EXPECT_EQ(assigned(AssignmentMethod::Auto, cost, parts), table);
    for (Index image = 0; image < count; ++image) {
      const double* of = cost.data() + image * parts * parts;
      const Indices best = by_brute_force(of, parts);
      const auto begin = table.perm.begin() + image * parts;
      ASSERT_EQ(Indices(begin, begin + parts), best);
      ASSERT_EQ(table.total[static_cast<std::size_t>(image)], total_of(of, best));
    }
  }
}

// Costs u_i + v_j + slack with slack 0 on a hidden permutation: the duals u, v prove that its total
// Σ u + Σ v is the least, for any size.
TEST(Assignment, hungarian_finds_the_optimum_that_duals_prove) {
  for (const Index parts : {8, 20, 33}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const auto size = static_cast<std::size_t>(parts);
      PhiloxStream random(seed, 5);
      Indices hidden = identity(parts);
      for (std::size_t k = size - 1; k > 0; --k)
        std::swap(hidden[k], hidden[random.below(static_cast<std::uint32_t>(k + 1))]);
      Values u(size), v(size), cost(size * size);
      for (double& value : u) value = static_cast<double>(random.below(1000)) - 500;
      for (double& value : v) value = static_cast<double>(random.below(1000)) - 500;
      for (std::size_t i = 0; i < cost.size(); ++i) {
        const bool tight = hidden[i / size] == static_cast<Index>(i % size);
        cost[i] = u[i / size] + v[i % size] + (tight ? 0.0 : 1.0 + random.below(50));
      }
      const double least =
          std::accumulate(u.begin(), u.end(), 0.0) + std::accumulate(v.begin(), v.end(), 0.0);
      for (const AssignmentMethod method : {AssignmentMethod::Hungarian, AssignmentMethod::Auto})
        EXPECT_EQ(assigned(method, cost, parts), (Assigned{hidden, {least}}));
    }
  }
}

TEST(Assignment, hungarian_is_not_beaten_by_exchanges) {
  const Index parts = 20;
  const Values cost = random_costs(parts * parts, 9);
  const Assigned got = assigned(AssignmentMethod::Hungarian, cost, parts);
  ASSERT_TRUE(is_permutation(got.perm));
  double by_rows = 0, by_columns = 0;  // lower bounds
  for (Index i = 0; i < parts; ++i) {
    double row = 1e9, column = 1e9;
    for (Index j = 0; j < parts; ++j) {
      row = std::min(row, cost[static_cast<std::size_t>(i * parts + j)]);
      column = std::min(column, cost[static_cast<std::size_t>(j * parts + i)]);
    }
    by_rows += row, by_columns += column;
  }
  EXPECT_GE(got.total[0], std::max(by_rows, by_columns));
  EXPECT_LE(got.total[0], assigned(AssignmentMethod::Greedy, cost, parts).total[0]);
  EXPECT_LE(got.total[0], assigned(AssignmentMethod::Sinkhorn, cost, parts).total[0]);
  for (std::size_t a = 0; a < got.perm.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      for (std::size_t c = 0; c < b; ++c) {
        Indices turned = got.perm;
        std::swap(turned[a], turned[b]);
        ASSERT_GE(total_of(cost.data(), turned), got.total[0]);
        std::swap(turned[b], turned[c]);
        ASSERT_GE(total_of(cost.data(), turned), got.total[0]);
      }
    }
  }
}

// Squared distances between points and the same points in another order.
TEST(Assignment, every_method_recovers_a_permutation_of_the_parts) {
  for (const Index parts : {2, 4, 7, 8, 12}) {
    const Index dim = 16;
    const Values points = random_costs(parts * dim, 17);
    Indices hidden = identity(parts);
    std::rotate(hidden.begin(), hidden.begin() + 1, hidden.end());
    std::swap(hidden.front(), hidden.back());
    Values cost;
    for (Index i = 0; i < parts; ++i) {
      for (Index j = 0; j < parts; ++j) {
        double sum = 0;
        for (Index d = 0; d < dim; ++d) {
          // Part j of the second view is the part k of the first with hidden[k] = j.
          const auto k = std::find(hidden.begin(), hidden.end(), j) - hidden.begin();
          const double difference = points[static_cast<std::size_t>(i * dim + d)] -
                                    points[static_cast<std::size_t>(k * dim + d)];
          sum += difference * difference;
        }
        cost.push_back(sum);
      }
    }
    for (const AssignmentMethod method : kAll) {
      if (method == AssignmentMethod::Table && parts > kMaxTableParts) continue;
      EXPECT_EQ(assigned(method, cost, parts), (Assigned{hidden, {0}})) << parts;
    }
  }
}

TEST(Assignment, adding_to_a_row_or_column_keeps_the_permutation) {
  const Index parts = 6;
  const Values cost = random_costs(parts * parts, 21);
  for (const AssignmentMethod method : kOptimal) {
    const Assigned plain = assigned(method, cost, parts);
    Values raised = cost;
    for (std::size_t i = 0; i < 6; ++i) raised[2 * 6 + i] += 8, raised[i * 6 + 3] -= 16;
    const Assigned got = assigned(method, raised, parts);
    EXPECT_EQ(got.perm, plain.perm);
    EXPECT_NEAR(got.total[0], plain.total[0] - 8, 1e-13);
  }
}

TEST(Assignment, greedy_takes_the_first_of_equal_costs) {
  const Values cost{5, 1, 1, 1, 5, 5, 0, 5, 5};
  EXPECT_EQ(assigned(AssignmentMethod::Greedy, cost, 3), (Assigned{{1, 2, 0}, {6}}));
}

// A plan loses at most the entropy times the regularization, parts ln parts spread / 50; its
// rounding may lose more, but not on average.
TEST(Assignment, sinkhorn_is_a_permutation_close_to_the_least_total) {
  for (const Index parts : {3, 4, 8}) {
    const Index count = 200;
    const Values cost = random_costs(count * parts * parts, 23);
    const Assigned got = assigned(AssignmentMethod::Sinkhorn, cost, parts);
    const Assigned best = assigned(AssignmentMethod::Hungarian, cost, parts);
    const Assigned greedy = assigned(AssignmentMethod::Greedy, cost, parts);
    double lost = 0, lost_greedily = 0;
    for (std::size_t image = 0; image < best.total.size(); ++image) {
      const auto begin = got.perm.begin() + static_cast<Index>(image) * parts;
      ASSERT_TRUE(is_permutation(Indices(begin, begin + parts)));
      ASSERT_GE(got.total[image], best.total[image] - 1e-12);
      lost += got.total[image] - best.total[image];
      lost_greedily += greedy.total[image] - best.total[image];
    }
    const auto n = static_cast<double>(parts);
    EXPECT_LE(lost / static_cast<double>(count), n * std::log(n) * 2 * kSinkhornRegularization);
    EXPECT_LT(lost, lost_greedily / 2);
  }
}

TEST(Assignment, has_the_same_bits_for_any_number_of_workers) {
  ThreadPool pool(3);
  for (const AssignmentMethod method : kAll) {
    const Values cost = random_costs(1500 * 16, 29);
    EXPECT_EQ(assigned(method, cost, 4, pool), assigned(method, cost, 4));
  }
}

TEST(AssignmentHostile, survives_the_largest_costs_and_no_images) {
  const Values cost{kMaxCost, -kMaxCost, -kMaxCost, kMaxCost};
  for (const AssignmentMethod method : kAll) {
    EXPECT_EQ(assigned(method, cost, 2), (Assigned{{1, 0}, {-2 * kMaxCost}}));
    EXPECT_EQ(assigned(method, {}, 4), Assigned{});
  }
}

TEST(AssignmentHostile, costs_that_are_not_finite_are_refused_with_their_place) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 2e300}) {
    Values cost(18, 1.0);
    cost[9 + 5] = bad;
    for (const AssignmentMethod method : kAll) {
      EXPECT_THAT(error_of([&] { assigned(method, cost, 3); }),
                  testing::AllOf(HasSubstr("expected costs within ±1e+300, got "),
                                 HasSubstr(" at [1, 1, 2]")));
    }
  }
  EXPECT_THAT(error_of([] { assigned(AssignmentMethod::Greedy, {std::nan("")}, 1); }),
              HasSubstr("[assign_greedy] expected costs within ±1e+300, got nan at [0, 0, 0]"));
}

TEST(AssignmentHostile, sizes_are_refused_by_name) {
  EXPECT_THAT(error_of([] { assign_by_table({.batch = 1, .parts = 8}); }),
              HasSubstr("[assign_by_table] expected parts <= 7, got 8"));
  EXPECT_THAT(error_of([] { assign_by_table({.batch = 1, .parts = -1}); }),
              HasSubstr("[assign_by_table] expected parts > 0, got -1"));
  EXPECT_THAT(error_of([] { assign_hungarian({.batch = 1, .parts = 0}); }),
              HasSubstr("[assign_hungarian] expected parts > 0, got 0"));
  EXPECT_THAT(error_of([] { assign_sinkhorn({.batch = -1, .parts = 2}); }),
              HasSubstr("[assign_sinkhorn] expected batch >= 0, got -1"));
}

}  // namespace
}  // namespace hone::kernels
