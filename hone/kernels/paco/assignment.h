// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Assigns a column to each row: for the cost matrix of every image, a permutation π and
//   total = Σ_k cost[k, π(k)],
// summed in the order of the rows. If all costs are equal, π is the identity.
struct AssignmentArgs {
  Index batch = 0, parts = 0;
  const double* cost = nullptr;  // [batch, parts, parts]
  Index* perm = nullptr;         // [batch, parts]: the column of each row
  double* total = nullptr;       // [batch]
};

// All methods throw Error{InvalidArgument} for a negative batch, for parts that are not positive,
// and for costs that are NaN or beyond ±kMaxCost. So no sum of costs overflows. Results do not
// depend on the number of workers.
inline constexpr double kMaxCost = 1e300;

// Finds the least total by trying all permutations. Of equal totals, it returns the permutation
// that is first in lexicographic order. Throws Error{InvalidArgument} for more than kMaxTableParts.
inline constexpr Index kMaxTableParts = 7;  // 5040 permutations
void assign_by_table(const AssignmentArgs& args, Executor& executor = serial_executor());

// Finds the least total for any number of parts in O(parts³), by shortest augmenting paths with
// dual variables (Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse
// linear assignment problems", 1987, without its initial heuristics).
void assign_hungarian(const AssignmentArgs& args, Executor& executor = serial_executor());

// Repeatedly takes the least remaining cost, of equal ones the first in row-major order, and
// removes its row and column. The total may be far from the least.
void assign_greedy(const AssignmentArgs& args, Executor& executor = serial_executor());

// Optimal transport between equal marginals with entropy as regularization (Cuturi, "Sinkhorn
// distances", 2013). Runs kSinkhornIterations alternating updates of the dual variables of rows and
// columns, in logarithms. The regularization is kSinkhornRegularization times the spread of the
// costs (largest minus least). Then runs assign_greedy on the costs minus both duals: that takes
// the entries of the plan in descending order. The result is close to the least total if other
// totals exceed it by several regularizations.
inline constexpr double kSinkhornRegularization = 0.02;
inline constexpr Index kSinkhornIterations = 200;
void assign_sinkhorn(const AssignmentArgs& args, Executor& executor = serial_executor());

// Auto: by table up to kMaxTableParts, otherwise Hungarian.
enum class AssignmentMethod { Auto, Table, Hungarian, Greedy, Sinkhorn };
void assign(AssignmentMethod method, const AssignmentArgs& args,
            Executor& executor = serial_executor());

}  // namespace hone::kernels
