// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <vector>

namespace hone::amp {

// Emulates fp16 in fp32 arithmetic, so that overflow, underflow and loss scaling occur on a CPU.
// Rounds to nearest, ties to even; values from 65,520 on become infinite.

// Rounds each element to fp16 and back. Differentiable: the gradient is rounded likewise. Throws
// Error{Unsupported} unless the tensor is fp32 on the CPU.
torch::Tensor round_through_half(const torch::Tensor& tensor);

// Rounds the inputs and outputs of every layer and their gradients, and each parameter's gradient
// of a backward pass before it is added to .grad.
//   amp::EmulatedHalf model(torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::ReLU()));
// Without a wrapped module it only rounds: put it between the layers of a model.
class EmulatedHalfImpl : public torch::nn::Module {
 public:
  explicit EmulatedHalfImpl(torch::nn::Sequential layers = nullptr);
  ~EmulatedHalfImpl() override;
  torch::Tensor forward(torch::Tensor x);

 private:
  torch::nn::Sequential layers_{nullptr};
  std::vector<std::pair<torch::Tensor, unsigned>> hooks_;
};
TORCH_MODULE(EmulatedHalf);

}  // namespace hone::amp
