// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <utility>
#include <vector>

namespace hone::nn {

// Gradients of the model's parameters as they were, put back at the end.
class GradientScope {
 public:
  explicit GradientScope(torch::nn::Module& model) {
    for (const torch::Tensor& parameter : model.parameters()) {
      before_.emplace_back(parameter, parameter.grad());
    }
    clear();
  }
  ~GradientScope() {
    for (const auto& [parameter, grad] : before_) parameter.mutable_grad() = grad;
  }
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

  void clear() const {
    for (const auto& [parameter, grad] : before_) parameter.mutable_grad() = torch::Tensor();
  }

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> before_;
};

}  // namespace hone::nn
