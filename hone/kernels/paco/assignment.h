// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Which column goes with which row: for the cost matrix of every image a permutation π and
//   total = Σ_k cost[k, π(k)],
// summed in the order of the rows. All equal costs give the identity.
struct AssignmentArgs {
  Index batch = 0, parts = 0;
  const double* cost = nullptr;  // [batch, parts, parts]
  Index* perm = nullptr;         // [batch, parts]: the column of each row
  double* total = nullptr;       // [batch]
};

// All methods: Error{InvalidArgument} on a negative batch, on parts that are not positive, and on
// costs that are NaN or beyond ±kMaxCost, so that no sum of them overflows. Results do not depend
// on the number of workers.
inline constexpr double kMaxCost = 1e300;

// The least total, by trying all permutations: of equal totals the permutation that is first in
// lexicographic order. Error{InvalidArgument} on more than kMaxTableParts.
inline constexpr Index kMaxTableParts = 7;  // 5040 permutations
void assign_by_table(const AssignmentArgs& args, Executor& executor = serial_executor());

// The least total for any number of parts in O(parts³): shortest augmenting paths with dual
// variables (Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse
// linear assignment problems", 1987, without its initial heuristics).
void assign_hungarian(const AssignmentArgs& args, Executor& executor = serial_executor());

// Takes the least cost left, of equal ones the first in row-major order, and strikes out its row
// and column. The total may be far from the least.
void assign_greedy(const AssignmentArgs& args, Executor& executor = serial_executor());

// Optimal transport between equal marginals with the entropy as regularization (Cuturi, "Sinkhorn
// distances", 2013): kSinkhornIterations alternating updates of the dual variables of rows and
// columns, in logarithms, with a regularization of kSinkhornRegularization times the spread of the
// costs (largest minus least); then assign_greedy on the costs minus both duals, that is on the
// entries of the plan from the largest. Close to the least total where others exceed it by several
// regularizations.
inline constexpr double kSinkhornRegularization = 0.02;
inline constexpr Index kSinkhornIterations = 200;
void assign_sinkhorn(const AssignmentArgs& args, Executor& executor = serial_executor());

// Auto: by table up to kMaxTableParts, else hungarian.
enum class AssignmentMethod { Auto, Table, Hungarian, Greedy, Sinkhorn };
void assign(AssignmentMethod method, const AssignmentArgs& args,
            Executor& executor = serial_executor());

}  // namespace hone::kernels
