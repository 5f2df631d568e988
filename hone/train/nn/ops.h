// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>
#include <string_view>
#include <utility>

#include "hone/kernels/activation/glu.h"
#include "hone/train/nn/epilogue.h"

namespace hone::nn {

// The library that multiplies f32 matrices on the CPU. Both are exact f32. Auto selects OneDnn on
// AVX-512 processors other than Intel's, where LibTorch's MKL uses its slower AVX2 path, and Mkl
// otherwise.
enum class MatmulBackend { Auto, OneDnn, Mkl };
// Replaces Auto by its choice for this machine. Throws Error{Unsupported} for OneDnn if LibTorch
// lacks it.
MatmulBackend resolve(MatmulBackend backend);
// Parses "auto", "onednn" or "mkl"; throws Error{InvalidArgument} for other names.
MatmulBackend parse_matmul_backend(std::string_view name);

// The differentiable steps of a decoder block. f32 tensors on the CPU use hone's fused kernels. All
// others use the composed operators below, which are also the reference for tests. In a CPU
// autocast scope, the fused products of linear and linear_cross_entropy round their operands to its
// type, in forward and backward passes. Activations between layers stay f32.

// Returns activation(x · weightᵀ + bias); x [..., in], weight [out, in], bias [out] or undefined.
// All functions here throw Error{InvalidArgument} for operands of other shapes or types, and
// Error{Unsupported} for second derivatives if a kernel computes the first ones.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     MatmulBackend backend, Activation activation = Activation::None);

// (x + delta, rms_norm(x + delta)·weight); delta may be undefined.
std::pair<torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                     const torch::Tensor& delta,
                                                     const torch::Tensor& weight, double eps);

using kernels::Gate;
// silu(gate)·up or gelu(gate)·up for rows [gate | up].
torch::Tensor glu(const torch::Tensor& gate_up, Gate gate);

// Returns the sum over rows of -log softmax(hidden·weightᵀ)[target] in nats, as an f64 scalar. Rows
// with a target below 0 count as 0. Computes the logits of logits_rows() rows at a time.
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& targets, MatmulBackend backend);
Index logits_rows(Index classes);

namespace composed {
std::pair<torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                     const torch::Tensor& delta,
                                                     const torch::Tensor& weight, double eps);
torch::Tensor glu(const torch::Tensor& gate_up, Gate gate);
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& targets);
}  // namespace composed

// Whether the fused kernels support this tensor.
bool takes_fused_kernels(const torch::Tensor& x);

}  // namespace hone::nn
