// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace hone::nn::detail {

// Dropout with a mask that is a pure function of a key. Element e is kept iff word e % 4 of the
// Philox block e / 4 of that key is at least floor(rate * 2^32). Kept elements are divided by 1 -
// rate. The backward pass applies the same function to the gradient, so that no mask is stored.

// Writes to `out`, which may be x itself. Both are contiguous and of one shape. The mask does not
// depend on the type, the device or the number of threads. f32 on the CPU takes one pass.
void drop(const torch::Tensor& x, double rate, std::uint64_t key, const torch::Tensor& out);

// The mask of the first `count` elements as bool, by LibTorch's operators.
torch::Tensor kept(torch::Device device, std::int64_t count, double rate, std::uint64_t key);

// Draws a key from LibTorch's CPU generator, which torch::manual_seed and RandomState govern.
std::uint64_t draw_dropout_key();

}  // namespace hone::nn::detail
