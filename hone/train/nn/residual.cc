// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/residual.h"

#include <ATen/ATen.h>

#include "hone/core/check.h"
#include "hone/train/nn/fused_linear.h"
#include "hone/train/nn/linear.h"
#include "hone/train/surgery/slot.h"

namespace hone::nn {
namespace {

using torch::Tensor;

// The linear layer that comes last and that the sum can join; null if there is none.
torch::nn::LinearImpl* last_linear(torch::nn::SequentialImpl& layers) {
  if (layers.is_empty()) return nullptr;
  torch::nn::Module* last = layers.ptr(layers.size() - 1).get();
  if (auto* const slot = last->as<SlotImpl>()) last = slot->layer().ptr().get();
  return exact_linear(*last);
}

}  // namespace

ResidualImpl::ResidualImpl(torch::nn::Sequential layers)
    : layers_(register_module("layers", std::move(layers))) {
  HONE_REQUIRE(!layers_->is_empty(), "Residual", "There are no layers.");
}

Tensor ResidualImpl::forward(const Tensor& x) {
  torch::nn::LinearImpl* const last = is_fused_ ? last_linear(*layers_) : nullptr;
  if (last == nullptr) return x + layers_->forward(x);
  Tensor y = x;
  for (auto layer = layers_->begin(); layer + 1 != layers_->end(); ++layer) y = layer->forward(y);
  return linear_add(y, last->weight, last->bias, x);
}

std::vector<FusionSite> ResidualImpl::fusion_sites(const std::string& path) {
  const torch::nn::LinearImpl* const last = last_linear(*layers_);
  if (last == nullptr) return {};
  FusionSite site{.pattern = "linear_residual",
                  .layers = {path + "layers." + layers_->named_children().keys().back()},
                  .operators = 2};
  // Bound to this layer, and not to what replaces it.
  const auto run = [weight = last->weight, bias = last->bias](bool is_fused) {
    return [=, zeros = Tensor()](const Tensor& x) mutable {
      if (!zeros.defined()) zeros = at::zeros_like(at::linear(x, weight));
      if (is_fused) return linear_add(x, weight, bias, zeros);
      return at::linear(x, weight, bias) + zeros;
    };
  };
  site.separate = run(false);
  site.fused = run(true);
  site.apply = [this] { is_fused_ = true; };
  site.undo = [this] { is_fused_ = false; };
  return {site};
}

std::shared_ptr<torch::nn::Module> ResidualImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto layers = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(layers_->clone(device));
  auto copy = std::make_shared<ResidualImpl>(torch::nn::Sequential(layers));
  copy->is_fused_ = is_fused_;
  copy->train(is_training());
  return copy;
}

}  // namespace hone::nn
