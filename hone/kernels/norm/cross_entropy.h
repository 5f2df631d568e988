// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// nats[r] = log_sum_exp(z) - z[target] of row r of the logits, and z <- softmax(z) - onehot(target)
// in place, the gradient. A target below 0 is ignored: 0 nats and a row of zeros. Logits of
// -infinity have probability 0; a row with a NaN, with +infinity or of nothing but -infinity gives
// NaN nats and a row of NaN. A row's result depends on that row alone.
struct CrossEntropyArgs {
  Index rows = 0, classes = 0;
  float* logits = nullptr;                // [rows, classes], overwritten when want_grad
  const std::int64_t* targets = nullptr;  // [rows], below classes
  double* nats = nullptr;                 // [rows]
  bool want_grad = true;
};

// Throws Error{InvalidArgument}, before writing anything, if rows is negative, classes is not
// positive or a target is not below classes.
void cross_entropy(const CrossEntropyArgs& args, Executor& executor = serial_executor());

// Plain loops in double.
void cross_entropy_ref(const CrossEntropyArgs& args);

}  // namespace hone::kernels
