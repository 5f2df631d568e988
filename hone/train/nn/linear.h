// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>

#include <memory>
#include <optional>

#include "hone/core/index.h"
#include "hone/train/nn/ops.h"

namespace hone::nn {

// torch::nn::Linear with the products of nn::linear. Code that reads the weights of a
// torch::nn::Linear also accepts this class. A call through the type of the base class uses
// LibTorch's products.
class LinearImpl final : public torch::nn::LinearImpl {
 public:
  // Weight and bias are 0 in f32.
  LinearImpl(Index in_features, Index out_features, bool has_bias, MatmulBackend backend);

  torch::Tensor forward(const torch::Tensor& x);  // [rows, in_features] -> [rows, out_features]
  MatmulBackend backend() const { return backend_; }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  MatmulBackend backend_;
};
TORCH_MODULE(Linear);

namespace dense {

// torch::nn::Linear as hone's classifiers have it. at::linear is one operator to autocast, which
// casts its weight once for all uses; the sum of torch::nn::Linear is one of a transposed weight,
// which it casts for each.
class LinearImpl final : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  explicit LinearImpl(const torch::nn::LinearImpl& same) : torch::nn::LinearImpl(same) {}

  torch::Tensor forward(const torch::Tensor& x);

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
};

}  // namespace dense

// The module if it is a torch::nn::Linear or one of the two classes above; null for other classes,
// also for those that derive from them and may compute something else.
torch::nn::LinearImpl* exact_linear(torch::nn::Module& module);

}  // namespace hone::nn
