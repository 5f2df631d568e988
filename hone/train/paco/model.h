// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>

#include "hone/train/nn/resnet.h"
#include "hone/train/paco/loss.h"
#include "hone/train/paco/sampler.h"

namespace hone::paco {

// More parts than these, or longer ones, are reduced with a warning unless the caps are off: the
// method was published with them, and its metrics have at most 2 (parts - 1) directions of their
// own, whatever the dimension.
inline constexpr Index kPartsCap = 4, kDimCap = 64;

struct PacoModelOptions {
  nn::VisionSpec backbone{.name = "resnet18", .channels = 3};  // a ResNet; its classes are not read
  nn::ResNetImpl::Stage stage = nn::ResNetImpl::Stage::Last;   // the map that parts are taken from
  Index classes = 0;                                           // must be set
  Index dim = 64;                                              // of a part
  bool enforce_caps = true;
  // true: both views go through the backbone as one batch, and share BatchNorm's statistics.
  bool joint_views = false;
  SamplerOptions sampler = {};
  PacoLossOptions loss = {};  // classes and dim are the model's
  WeightedCeOptions ce = {};
  double lambda_pac = 1, eta_soc = 0.1;  // weights of the two losses
  std::uint64_t seed = 0;                // of new weights
};

// What is not computed is undefined.
struct PacoOutput {
  torch::Tensor logits;               // [batch, classes]
  torch::Tensor total, ce, pac, soc;  // scalars; total = ce + lambda_pac pac + eta_soc soc
  torch::Tensor features;             // [batch, channels], the mean over the map, of both views
  SampledParts view1, view2;
  PacoLossOutput parts;
};

// A ResNet, a projection of parts without bias, a linear classifier of the mean feature, and
// PacoLoss. Parameters and buffers: backbone.*, projection.weight [dim, channels], classifier.*,
// loss.prototype, loss.prototype_count.
class PacoModelImpl : public torch::nn::Module {
 public:
  // Error{InvalidArgument} for a backbone that is not a ResNet and options out of range.
  explicit PacoModelImpl(PacoModelOptions options);

  // Images [batch, channels, height, width]. One view: the logits. Two views: the logits of the
  // mean of their features and, with targets int64 [batch], the losses.
  // Error{InvalidArgument} for targets without a second view.
  PacoOutput forward(const torch::Tensor& view1, const torch::Tensor& view2 = {},
                     const torch::Tensor& targets = {});
  void set_epoch(Index epoch) { loss->set_epoch(epoch); }
  // After the caps.
  const PacoModelOptions& options() const { return options_; }

  nn::ResNet backbone{nullptr};
  torch::nn::Linear projection{nullptr}, classifier{nullptr};
  PacoLoss loss{nullptr};

 private:
  PacoModelOptions options_;
};
TORCH_MODULE(PacoModel);

}  // namespace hone::paco
