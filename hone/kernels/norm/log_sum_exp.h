// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// log(sum_i exp(x[i])) in double precision. -infinity for an empty or all -infinity row; NaN if any
// element is NaN. Error{InvalidArgument} on negative cols.
double log_sum_exp(const float* x, Index cols);

// Plain loops in double.
double log_sum_exp_ref(const float* x, Index cols);

}  // namespace hone::kernels
