// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone::tune {

// 16, 32, 64, … below 0.9 h with h = in * out / (in + out), the rank at which a pair of factors
// costs as much as the dense matrix [in, out]. Empty for small matrices. Throws
// Error{InvalidArgument} unless both sizes are at least 1.
std::vector<Index> ranks_below_dense(Index in, Index out);

// What a layer costs (milliseconds, bytes or operations) and how far its output is from the dense
// one's (for example the squared tail of its singular values) at one rank; rank 0 is dense.
struct RankOption {
  Index rank = 0;
  double cost = 0, error = 0;
};

struct LayerCurve {
  std::string name;
  double sensitivity = 1;  // the weight of this layer's errors in the sum
  std::vector<RankOption> options;
};

struct RankPlan {
  std::vector<Index> ranks;    // one for each layer
  double cost = 0, error = 0;  // sum of costs; sum of sensitivity * error
};

// Chooses a rank for each layer to minimize the sum of costs under sum(sensitivity * error) <=
// budget; empty if no choice keeps the budget. Takes the lower convex hulls of the curves, bisects
// the multiplier at which both sums trade (Lagrange), and repairs the result with exchanges of one
// or two layers, so that it costs at most one step of one hull more than the optimum. Throws
// Error{InvalidArgument} that names the layer if a curve is empty, has a rank twice, a negative
// rank, or a number that is negative or not finite, or if the budget is negative or NaN.
std::optional<RankPlan> plan_ranks(std::span<const LayerCurve> layers, double budget);

}  // namespace hone::tune
