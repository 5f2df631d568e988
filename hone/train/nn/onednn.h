// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <array>

#include "hone/core/index.h"
#include "hone/train/nn/epilogue.h"

// oneDNN's f32 products with an activation, which LibTorch registers for its compiler, without
// gradient.
namespace hone::nn::onednn {

// Whether this LibTorch has them. Without them, the functions below throw Error{Unsupported}.
bool has_linear();
bool has_conv();

// activation(x [m, k] · weight [n, k]ᵀ + bias [n]); the bias may be undefined.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias = {}, Activation activation = Activation::None);

struct ConvGeometry {
  std::array<Index, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  Index groups = 1;
};
// A weight [out, in / groups, rows, columns] in the layout that oneDNN prefers for inputs of these
// sizes. Only conv() below reads it.
torch::Tensor packed(const torch::Tensor& weight, const ConvGeometry& geometry,
                     at::IntArrayRef input_sizes);
// activation(convolution of x + bias + residual), in channels-last layout. The bias and the
// residual may be undefined; with a residual, the activation is None or Relu.
torch::Tensor conv(const torch::Tensor& x, const torch::Tensor& packed_weight,
                   const torch::Tensor& bias, const ConvGeometry& geometry, Activation activation,
                   const torch::Tensor& residual);

}  // namespace hone::nn::onednn
