// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace hone::nn {

// Fills f32 memory with normal(0, std) by Box-Muller over one Philox stream per tensor,
// independently of LibTorch's generators and of the order of construction.
void fill_normal(const torch::Tensor& tensor, double std, std::uint64_t seed, std::uint64_t stream);

}  // namespace hone::nn
