// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/index.h"

namespace hone::tune {

// One objective of a candidate; smaller is better. [low, high]: its 95 % interval (equal for exact
// figures such as bytes).
struct Objective {
  double value = 0, low = 0, high = 0;
};

// Positions of the candidates that no other dominates, in order. a dominates b when a is no worse
// in every objective and better beyond both intervals in at least one; "no worse" allows
// overlapping intervals, so that candidates which noise cannot tell apart all stay. Every row has
// the same number of objectives, else Error{InvalidArgument}.
std::vector<Index> pareto_front(std::span<const std::vector<Objective>> candidates);

}  // namespace hone::tune
