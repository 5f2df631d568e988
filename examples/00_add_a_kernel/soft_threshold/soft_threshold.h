// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hone/core/index.h>

namespace example {

using hone::Index;

// y[i] = sign(x[i]) * max(|x[i]| - threshold, 0): the proximal operator of the 1-norm. NaN stays
// NaN. y may be x; otherwise they do not overlap. No alignment needed, nothing is read past the
// end.
struct SoftThresholdArgs {
  const float* x = nullptr;  // [count]
  float* y = nullptr;        // [count]
  Index count = 0;
  float threshold = 0;  // >= 0
};

// Error{InvalidArgument} on a negative count or threshold. Results depend on neither the
// instruction set nor the number of threads.
void soft_threshold(const SoftThresholdArgs& args);

// Plain loops: the oracle.
void soft_threshold_ref(const SoftThresholdArgs& args);

}  // namespace example
