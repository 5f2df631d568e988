// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>

namespace hone::nn::detail {

inline float* data_of(const torch::Tensor& tensor) { return tensor.data_ptr<float>(); }

// Autograd functions accept an absent tensor only as nullopt.
inline std::optional<torch::Tensor> optional_of(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace hone::nn::detail
