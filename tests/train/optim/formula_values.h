// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

namespace hone::optim {

// Parameters and gradients that the Python peers make by the same formula.
inline torch::Tensor values(std::int64_t rows, std::int64_t cols, double seed) {
  const torch::Tensor i = at::arange(rows * cols, at::kDouble);
  return at::sin(i * 12.9898 + seed * 78.233).reshape({rows, cols}).to(at::kFloat);
}

}  // namespace hone::optim
