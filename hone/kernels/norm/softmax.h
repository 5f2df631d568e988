// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// y[r, i] = exp(x[r, i] - max_j x[r, j]) / sum_j exp(x[r, j] - max); rows `stride` elements apart.
// y may be x. Entries of -infinity get probability 0; a row of nothing but -infinity becomes zeros,
// a row with a NaN becomes NaN. A row's result depends on that row alone.
struct SoftmaxArgs {
  const float* x = nullptr;
  float* y = nullptr;
  Index stride = 0;
  Index rows = 0, cols = 0;
};

// Error{InvalidArgument} on a negative size or a stride below cols.
void softmax(const SoftmaxArgs& args);

// log(sum_i exp(x[i])): exponentials in f32, summed in f32 over 512 elements and in double
// beyond. -infinity for an empty or all -infinity row; NaN if any element is NaN.
double log_sum_exp(const float* x, Index cols);

// Plain loops, double throughout.
void softmax_ref(const SoftmaxArgs& args);
double log_sum_exp_ref(const float* x, Index cols);

}  // namespace hone::kernels
