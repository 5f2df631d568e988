// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string_view>

namespace hone::loss {

// What the losses over all rows of a batch share.

// Throws Error{InvalidArgument} for op unless features are floating-point [rows, dim], neither of
// them 0, and targets int64 [rows] on the same device.
void check_rows(std::string_view op, const torch::Tensor& features, const torch::Tensor& targets);

// Features [rows, dim], each row divided by its Euclidean norm, but by no less than 1e-12: fp64 for
// fp64 features, otherwise fp32. The gradient of a row below that norm is that of a division by
// 1e-12, beyond what fp16 features can hold.
torch::Tensor unit_rows(const torch::Tensor& features);

// Whether j is another row of the class of row i: bool [rows, rows].
torch::Tensor positive_pairs(const torch::Tensor& targets);

}  // namespace hone::loss
