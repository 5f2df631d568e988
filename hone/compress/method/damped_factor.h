// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/kernels/linalg/gram.h"

namespace hone::compress {

// The lower Cholesky factor [cols, cols] of H + damp diag(H) + ε I, with zeros above the diagonal.
// ε is the fraction `least` of the mean of the diagonal, and ten times as much until there is a
// factor, so that no finite inputs fail; 1 for inputs that are all 0.
std::vector<double> damped_factor(const kernels::Gram& inputs, double damp, double least,
                                  Executor& executor);

}  // namespace hone::compress
