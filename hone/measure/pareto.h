// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/index.h"

namespace hone::measure {

// One objective of a candidate; smaller is better. [low, high] is its 95 % interval (equal for
// exact values such as bytes).
struct Objective {
  double value = 0, low = 0, high = 0;
};

// The positions of the candidates that no other one dominates, in order. a dominates b if a is no
// worse in every objective and better beyond both intervals in at least one. "No worse" allows
// overlapping intervals, so that candidates that noise cannot distinguish all remain. Throws
// Error{InvalidArgument} unless all candidates have the same number of objectives.
std::vector<Index> pareto_front(std::span<const std::vector<Objective>> candidates);

}  // namespace hone::measure
