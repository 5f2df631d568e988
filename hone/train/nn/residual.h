// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "hone/train/surgery/fusion_site.h"

namespace hone::nn {

// x + layers(x). The submodule is "layers".
class ResidualImpl final : public torch::nn::Cloneable<ResidualImpl>, public Fusible {
 public:
  explicit ResidualImpl(torch::nn::Sequential layers);

  torch::Tensor forward(const torch::Tensor& x);
  // A last linear layer and the sum become one product.
  std::vector<FusionSite> fusion_sites(const std::string& path) override;

  void reset() override {}
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  torch::nn::Sequential layers_;
  bool is_fused_ = false;
};
TORCH_MODULE(Residual);

}  // namespace hone::nn
