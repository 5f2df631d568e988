// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>
#include <string_view>
#include <utility>

#include "hone/core/index.h"

namespace hone::nn {

// Which library multiplies f32 matrices on the CPU. Both are exact f32. Auto: OneDnn on processors
// that are not Intel's and may use AVX-512, where LibTorch's MKL takes its AVX2 path (2.2 x slower
// on an EPYC of the Zen 5 family), else Mkl.
enum class MatmulBackend { Auto, OneDnn, Mkl };
// Auto becomes what it stands for on this machine; OneDnn where LibTorch lacks it:
// Error{Unsupported}.
MatmulBackend resolve(MatmulBackend backend);
// "auto", "onednn", "mkl"; Error{InvalidArgument} on another name.
MatmulBackend parse_matmul_backend(std::string_view name);

// The differentiable steps of a decoder block. f32 tensors on the CPU take hone's fused kernels,
// all others the composed operators below, which are also the tests' oracle. In an autocast scope
// of the CPU the fused products of linear and linear_cross_entropy, forward and backward, round
// their operands to its type; what flows between layers stays f32.

// x · weightᵀ + bias; x [rows, in], weight [out, in], bias [out] or undefined.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     MatmulBackend backend);

// (x + delta, rms_norm(x + delta)·weight); delta may be undefined.
std::pair<torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                     const torch::Tensor& delta,
                                                     const torch::Tensor& weight, double eps);

// silu(gate)·up of rows [gate | up].
torch::Tensor swiglu(const torch::Tensor& gate_up);

struct RopeTable {
  torch::Tensor cos, sin;  // [context, head_dim/2]
};
struct HeadLayout {
  Index heads = 0, kv_heads = 0, head_dim = 0;
  Index width() const { return (heads + 2 * kv_heads) * head_dim; }
};
// qkv [batch, positions, heads q | kv_heads k | kv_heads v] before RoPE -> [batch, positions,
// heads·head_dim]; half-split RoPE from position 0, causal, scale 1/√head_dim.
torch::Tensor causal_attention(const torch::Tensor& qkv, const RopeTable& rope,
                               const HeadLayout& layout);

// Σ over rows of -log softmax(hidden·weightᵀ)[target], in nats, f64 scalar. Targets below 0 count
// 0.
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& targets, MatmulBackend backend);

namespace composed {
std::pair<torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                     const torch::Tensor& delta,
                                                     const torch::Tensor& weight, double eps);
torch::Tensor swiglu(const torch::Tensor& gate_up);
torch::Tensor causal_attention(const torch::Tensor& qkv, const RopeTable& rope,
                               const HeadLayout& layout);
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& targets);
}  // namespace composed

// Do the fused kernels take this tensor?
bool takes_fused_kernels(const torch::Tensor& x);

}  // namespace hone::nn
