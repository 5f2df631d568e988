// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// Returns log(sum_i exp(x[i])) in double precision: -infinity for an empty or all -infinity row,
// and NaN if any element is NaN. Throws Error{InvalidArgument} for negative cols.
double log_sum_exp(const float* x, Index cols);

// Reference: plain loops in double.
double log_sum_exp_ref(const float* x, Index cols);

}  // namespace hone::kernels
