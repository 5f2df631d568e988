// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// x[i] = cap tanh(x[i] / cap), in place (Gemma 2, arXiv 2408.00118, section 2). NaN stays NaN.
// Throws Error{InvalidArgument} if `cap` is not positive.
void soft_cap(std::span<float> x, float cap, Executor& executor = serial_executor());

// Reference: plain loops in double.
void soft_cap_ref(std::span<float> x, float cap);

}  // namespace hone::kernels
