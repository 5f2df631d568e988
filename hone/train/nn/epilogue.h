// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace hone::nn {

// Gelu by erf, GeluTanh by tanh.
enum class Activation { None, Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh };

// The operations after a layer's product: y = dropout(activation(product + bias)). Dropout applies
// in training mode only.
struct Epilogue {
  Activation activation = Activation::None;
  double dropout = 0;  // the rate, in [0, 1)
};
// Throws Error{InvalidArgument} for a rate out of range.
void check_epilogue(const Epilogue& epilogue);

namespace detail {

// True if the backward pass needs the values before the activation. ReLU needs only the result.
bool keeps_input(Activation activation);

// The activation of z. May overwrite z unless keeps_input and `wants_grad`.
torch::Tensor activate(Activation activation, const torch::Tensor& z, bool wants_grad);
// Like activate(), by LibTorch's differentiable operators.
torch::Tensor activated(Activation activation, const torch::Tensor& z);
// Returns the gradient with respect to z. `saved` is z if keeps_input(), otherwise the layer's
// result.
torch::Tensor activate_backward(Activation activation, const torch::Tensor& grad,
                                const torch::Tensor& saved);

}  // namespace detail
}  // namespace hone::nn
