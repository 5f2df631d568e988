// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include "hone/core/index.h"

namespace hone::opponents {

// y = x · Wᵀ by LibTorch, for side-by-side measurements.
struct LinearProblem {
  std::span<const float> x, weight;  // [rows, depth], [outputs, depth]
  Index rows = 0, outputs = 0, depth = 0;
  Index copies = 1;  // of the weight; call i uses copy i % copies
  int threads = 1;   // LibTorch's, set for the whole process
};

// at::linear in f32 without autograd, output allocated by every call as LibTorch's users do.
std::function<void()> make_torch_linear(const LinearProblem& problem);

}  // namespace hone::opponents
