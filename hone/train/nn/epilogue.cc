// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/epilogue.h"

#include <ATen/ATen.h>

#include "hone/core/check.h"

namespace hone::nn {

void check_epilogue(const Epilogue& epilogue) {
  HONE_CHECK(epilogue.dropout >= 0 && epilogue.dropout < 1, "Epilogue", "a dropout rate in [0, 1)",
             epilogue.dropout);
}

namespace detail {

using torch::Tensor;

bool keeps_input(Activation activation) {
  return activation != Activation::None && activation != Activation::Relu;
}

Tensor activate(Activation activation, const Tensor& z, bool wants_grad) {
  Tensor y = keeps_input(activation) && wants_grad ? at::empty_like(z) : z;
  switch (activation) {
    case Activation::None:
      return z;
    case Activation::Relu:
      return y.relu_();
    case Activation::Gelu:
      return at::gelu_out(y, z, "none");
    case Activation::GeluTanh:
      return at::gelu_out(y, z, "tanh");
    case Activation::Silu:
      return at::silu_out(y, z);
    case Activation::Sigmoid:
      return at::sigmoid_out(y, z);
    case Activation::Tanh:
      return at::tanh_out(y, z);
  }
  fail_argument("Epilogue", "No such activation.");
}

Tensor activated(Activation activation, const Tensor& z) {
  switch (activation) {
    case Activation::None:
      return z;
    case Activation::Relu:
      return at::relu(z);
    case Activation::Gelu:
      return at::gelu(z, "none");
    case Activation::GeluTanh:
      return at::gelu(z, "tanh");
    case Activation::Silu:
      return at::silu(z);
    case Activation::Sigmoid:
      return at::sigmoid(z);
    case Activation::Tanh:
      return at::tanh(z);
  }
  fail_argument("Epilogue", "No such activation.");
}

Tensor activate_backward(Activation activation, const Tensor& grad, const Tensor& saved) {
  switch (activation) {
    case Activation::None:
      return grad;
    case Activation::Relu:
      return at::threshold_backward(grad, saved, 0);
    case Activation::Gelu:
      return at::gelu_backward(grad, saved, "none");
    case Activation::GeluTanh:
      return at::gelu_backward(grad, saved, "tanh");
    case Activation::Silu:
      return at::silu_backward(grad, saved);
    case Activation::Sigmoid:
      return at::sigmoid_backward(grad, saved.sigmoid());
    case Activation::Tanh:
      return at::tanh_backward(grad, saved.tanh());
  }
  fail_argument("Epilogue", "No such activation.");
}

}  // namespace detail
}  // namespace hone::nn
