// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

#include "hone/train/nn/ops.h"

namespace hone::nn {

// Returns x · weightᵀ + bias + residual; x [..., in], weight [out, in], bias [out] or undefined,
// residual [..., out]. Without gradients, the sum happens in the memory of the product.
torch::Tensor linear_add(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias, const torch::Tensor& residual);

// activation(x · weightᵀ + bias) as one operator that trains. x is [..., in_features]. Code that
// reads the weights of a torch::nn::Linear also accepts this class.
class FusedLinearImpl final : public torch::nn::LinearImpl {
 public:
  // Shares the parameters of `linear`, so that ties, requires_grad and optimizers stay as they are.
  FusedLinearImpl(const torch::nn::LinearImpl& linear, Activation activation);
  // Draws the weights as torch::nn::Linear does.
  FusedLinearImpl(Index in_features, Index out_features, Activation activation)
      : FusedLinearImpl(torch::nn::LinearImpl(in_features, out_features), activation) {}

  torch::Tensor forward(const torch::Tensor& x);
  Activation activation() const { return activation_; }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  Activation activation_;
};
TORCH_MODULE(FusedLinear);

}  // namespace hone::nn
