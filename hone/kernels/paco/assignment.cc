// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/assignment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

namespace hone::kernels {
namespace {

using Values = std::vector<double>;
using Indices = std::vector<Index>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_assignment(const char* op, const AssignmentArgs& args) {
  HONE_CHECK(args.batch >= 0, op, "batch >= 0", args.batch);
  HONE_CHECK(args.parts > 0, op, "parts > 0", args.parts);
  const Index square = args.parts * args.parts;
  for (Index i = 0; i < args.batch * square; ++i) {
    HONE_CHECK(std::abs(args.cost[i]) <= kMaxCost, op, concat("costs within ±", kMaxCost),
               concat(args.cost[i], " at [", i / square, ", ", i % square / args.parts, ", ",
                      i % args.parts, "]"));
  }
}

// Runs solve(cost, perm) for every image; `work` is about the number of operations of one.
template <class Solve>
void assign_images(const char* op, const AssignmentArgs& args, Index work, Executor& executor,
                   const Solve& solve) {
  HONE_TRACE_ZONE(op, {"batch", args.batch}, {"parts", args.parts});
  check_assignment(op, args);
  const Index parts = args.parts;
  executor.parallel_for(args.batch, rows_per_chunk(work), [&](Index begin, Index end, int) {
    for (Index image = begin; image < end; ++image) {
      const double* cost = args.cost + image * parts * parts;
      Index* perm = args.perm + image * parts;
      solve(cost, perm);
      double total = 0;
      for (Index k = 0; k < parts; ++k) total += cost[k * parts + perm[k]];
      args.total[image] = total;
    }
  });
}

using Permutation = std::array<std::uint8_t, kMaxTableParts>;

std::vector<Permutation> list_permutations(Index parts) {
  Permutation permutation{};
  std::iota(permutation.begin(), permutation.end(), std::uint8_t{0});
  std::vector<Permutation> all;
  do {
    all.push_back(permutation);
  } while (std::next_permutation(permutation.begin(), permutation.begin() + parts));
  return all;
}

const std::vector<Permutation>& permutations_of(Index parts) {
  static const auto tables = [] {
    std::array<std::vector<Permutation>, kMaxTableParts + 1> all;
    for (Index n = 1; n <= kMaxTableParts; ++n)
      all[static_cast<std::size_t>(n)] = list_permutations(n);
    return all;
  }();
  return tables[static_cast<std::size_t>(parts)];
}

// Rows enter one by one, each by the shortest path of reduced costs cost - row_dual - column_dual
// to a free column. Row and column 0 of the scratch are the path's start.
void solve_hungarian(const double* cost, Index parts, Index* perm) {
  const auto size = static_cast<std::size_t>(parts + 1);
  Values row_dual(size), column_dual(size), distance(size);
  Indices row_of(size), before(size);  // of each column: its row, and the column before on the path
  std::vector<std::uint8_t> reached(size);
  for (std::size_t row = 1; row < size; ++row) {
    row_of[0] = static_cast<Index>(row);
    std::fill(distance.begin(), distance.end(), kInfinity);
    std::fill(reached.begin(), reached.end(), std::uint8_t{0});
    std::size_t at = 0;
    do {
      reached[at] = 1;
      const auto from = static_cast<std::size_t>(row_of[at]);
      const double* costs = cost + (row_of[at] - 1) * parts;
      double least = kInfinity;
      std::size_t next = 0;
      for (std::size_t j = 1; j < size; ++j) {
        if (reached[j] != 0) continue;
        const double reduced = costs[j - 1] - row_dual[from] - column_dual[j];
        if (reduced < distance[j]) distance[j] = reduced, before[j] = static_cast<Index>(at);
        if (distance[j] < least) least = distance[j], next = j;
      }
      for (std::size_t j = 0; j < size; ++j) {
        if (reached[j] != 0) {
          row_dual[static_cast<std::size_t>(row_of[j])] += least;
          column_dual[j] -= least;
        } else {
          distance[j] -= least;
        }
      }
      at = next;
    } while (row_of[at] != 0);
    while (at != 0) {
      const auto previous = static_cast<std::size_t>(before[at]);
      row_of[at] = row_of[previous];
      at = previous;
    }
  }
  for (std::size_t j = 1; j < size; ++j) perm[row_of[j] - 1] = static_cast<Index>(j) - 1;
}

void solve_greedy(const double* cost, Index parts, Index* perm) {
  Indices order(static_cast<std::size_t>(parts * parts));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return cost[a] < cost[b]; });
  std::vector<std::uint8_t> taken(static_cast<std::size_t>(parts));
  std::fill_n(perm, parts, Index{-1});
  for (const Index cell : order) {
    const Index row = cell / parts, column = cell % parts;
    if (perm[row] >= 0 || taken[static_cast<std::size_t>(column)] != 0) continue;
    perm[row] = column;
    taken[static_cast<std::size_t>(column)] = 1;
  }
}

// Minus the regularization times ln Σ exp(-x / regularization) of n values.
double soft_minimum(const Values& values, double regularization) {
  const double least = *std::min_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp((least - value) / regularization);
  return least - regularization * std::log(sum);
}

void solve_sinkhorn(const double* cost, Index parts, Index* perm) {
  const auto size = static_cast<std::size_t>(parts);
  const auto [least, most] = std::minmax_element(cost, cost + parts * parts);
  const double regularization = kSinkhornRegularization * (*most - *least);
  Values row_dual(size), column_dual(size), line(size), reduced(cost, cost + parts * parts);
  for (Index step = 0; step < kSinkhornIterations && regularization > 0; ++step) {
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) line[j] = cost[i * size + j] - column_dual[j];
      row_dual[i] = soft_minimum(line, regularization);
    }
    for (std::size_t j = 0; j < size; ++j) {
      for (std::size_t i = 0; i < size; ++i) line[i] = cost[i * size + j] - row_dual[i];
      column_dual[j] = soft_minimum(line, regularization);
    }
  }
  for (std::size_t i = 0; i < reduced.size(); ++i)
    reduced[i] -= row_dual[i / size] + column_dual[i % size];
  solve_greedy(reduced.data(), parts, perm);
}

}  // namespace

void assign_by_table(const AssignmentArgs& args, Executor& executor) {
  const Index parts = args.parts;
  HONE_CHECK(parts <= kMaxTableParts, "assign_by_table", concat("parts <= ", kMaxTableParts),
             parts);
  const std::vector<Permutation>& all = permutations_of(std::max<Index>(parts, 0));
  const Index work = static_cast<Index>(all.size()) * parts;
  assign_images("assign_by_table", args, work, executor, [&](const double* cost, Index* perm) {
    double least = kInfinity;
    const Permutation* best = nullptr;
    for (const Permutation& permutation : all) {
      double total = 0;
      for (Index k = 0; k < parts; ++k)
        total += cost[k * parts + permutation[static_cast<std::size_t>(k)]];
      if (total < least) least = total, best = &permutation;
    }
    std::copy_n(best->begin(), parts, perm);
  });
}

void assign_hungarian(const AssignmentArgs& args, Executor& executor) {
  const Index parts = args.parts;
  assign_images("assign_hungarian", args, 4 * parts * parts * parts, executor,
                [=](const double* cost, Index* perm) { solve_hungarian(cost, parts, perm); });
}

void assign_greedy(const AssignmentArgs& args, Executor& executor) {
  const Index parts = args.parts;
  assign_images("assign_greedy", args, 16 * parts * parts, executor,
                [=](const double* cost, Index* perm) { solve_greedy(cost, parts, perm); });
}

void assign_sinkhorn(const AssignmentArgs& args, Executor& executor) {
  const Index parts = args.parts;
  assign_images("assign_sinkhorn", args, kSinkhornIterations * 16 * parts * parts, executor,
                [=](const double* cost, Index* perm) { solve_sinkhorn(cost, parts, perm); });
}

void assign(AssignmentMethod method, const AssignmentArgs& args, Executor& executor) {
  switch (method) {
    case AssignmentMethod::Auto:
      return args.parts <= kMaxTableParts ? assign_by_table(args, executor)
                                          : assign_hungarian(args, executor);
    case AssignmentMethod::Table:
      return assign_by_table(args, executor);
    case AssignmentMethod::Hungarian:
      return assign_hungarian(args, executor);
    case AssignmentMethod::Greedy:
      return assign_greedy(args, executor);
    case AssignmentMethod::Sinkhorn:
      return assign_sinkhorn(args, executor);
  }
}

}  // namespace hone::kernels
