// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// For row r of the logits, nats[r] = log_sum_exp(z) - z[target]. Replaces z by the gradient
// softmax(z) - onehot(target). A target below 0 is ignored: 0 nats and a row of zeros. Logits of
// -infinity have probability 0. A row with a NaN, with +infinity or with only -infinity gives NaN
// nats and a row of NaN. A row's result depends only on that row.
struct CrossEntropyArgs {
  Index rows = 0, classes = 0;
  float* logits = nullptr;                // [rows, classes], overwritten if want_grad
  const std::int64_t* targets = nullptr;  // [rows], below classes
  double* nats = nullptr;                 // [rows]
  bool want_grad = true;
};

// Throws Error{InvalidArgument}, before writing anything, if rows is negative, classes is not
// positive or a target is not below classes.
void cross_entropy(const CrossEntropyArgs& args, Executor& executor = serial_executor());

// Reference: plain loops in double.
void cross_entropy_ref(const CrossEntropyArgs& args);

}  // namespace hone::kernels
