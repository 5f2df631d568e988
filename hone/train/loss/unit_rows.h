// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string_view>

namespace hone::loss {

// Shared by the losses over all rows of a batch.

// Throws Error{InvalidArgument} that names `op` unless features are floating-point [rows, dim] with
// both sizes above 0, and targets are int64 [rows] on the same device.
void check_rows(std::string_view op, const torch::Tensor& features, const torch::Tensor& targets);

// Divides each row of features [rows, dim] by its Euclidean norm, or by 1e-12 if that is larger.
// Returns fp64 for fp64 features, otherwise fp32. Below that norm, the gradient is that of a
// division by 1e-12, which can exceed the range of fp16 features.
torch::Tensor unit_rows(const torch::Tensor& features);

// bool [rows, rows]: true if i ≠ j and both rows have the same class.
torch::Tensor positive_pairs(const torch::Tensor& targets);

}  // namespace hone::loss
