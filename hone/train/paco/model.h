// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>

#include "hone/core/file/json_io.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/paco/loss.h"
#include "hone/train/paco/peak_cache.h"
#include "hone/train/paco/sampler.h"

namespace hone::paco {

// More parts than these, or longer ones, are reduced with a warning unless the caps are off: the
// method was published with them, and its metrics have at most 2 (parts - 1) directions of their
// own, whatever the dimension.
inline constexpr Index kPartsCap = 4, kDimCap = 64;

// What cross entropy is of: the logits of each view, or, as the method was published, of the mean
// of their features, which a model for one image never sees again.
enum class CeViews { Each, Mean };

struct PacoModelOptions {
  // A ResNet; its classes are not read.
  nn::VisionSpec backbone{.name = "resnet18", .channels = 3};
  nn::ResNetImpl::Stage stage = nn::ResNetImpl::Stage::Last;  // the map that parts are taken from
  Index classes = 0;                                          // must be set
  Index dim = 64;                                             // of a part
  bool enforce_caps = true;
  // true: both views go through the backbone as one batch, and share BatchNorm's statistics.
  bool joint_views = false;
  SamplerOptions sampler = {};
  PacoLossOptions loss = {};  // classes, dim, contrasts and aligns are the model's
  WeightedCeOptions ce = {};
  CeViews ce_views = CeViews::Each;
  // Weights of the two losses; what has a weight of 0 is not computed (PacoLossOptions).
  double lambda_pac = 1, eta_soc = 0.1;
  // Above 1: peaks of as many images are kept for several visits (PeakCache), on the CPU only.
  Index refresh_every = 1, images = 0;
  std::uint64_t seed = 0;  // of new weights
};

// What is not computed is undefined.
struct PacoOutput {
  torch::Tensor logits;               // [batch, classes]
  torch::Tensor total, ce, pac, soc;  // scalars; total = ce + lambda_pac pac + eta_soc soc
  // [batch, channels], the mean over the last map, of each view that there is.
  torch::Tensor features1, features2;
  SampledParts view1, view2;
  PacoLossOutput parts;
};

// A ResNet with its classifier, a projection of parts without bias, and PacoLoss. Parameters and
// buffers: backbone.*, projection.weight [dim, channels of the stage], loss.prototype,
// loss.prototype_count and, with refresh_every above 1, those of PeakCache as peaks.*. Autocast has
// an effect on the backbone only.
class PacoModelImpl : public torch::nn::Module {
 public:
  // Error{InvalidArgument} for a backbone that is not a ResNet and options out of range.
  explicit PacoModelImpl(PacoModelOptions options);
  // Takes this backbone, which has a classifier; `options.backbone` and `classes` are not read.
  PacoModelImpl(nn::ResNet network, PacoModelOptions options);

  // Images [batch, channels, height, width]. One view: the logits. Two views: the logits of the
  // mean of their features and, with targets int64 [batch], the losses. Kept peaks are used, their
  // parts matched in their order, and visits counted, where it is known what the batch shows.
  // Error{InvalidArgument} for targets without a second view, and as PeakCache.
  PacoOutput forward(const torch::Tensor& view1, const torch::Tensor& view2 = {},
                     const torch::Tensor& targets = {}, const ShownImages& shown = {});
  // From 0; decides by which metric parts are matched.
  void set_epoch(Index epoch) { loss->set_epoch(epoch); }
  // After the caps.
  const PacoModelOptions& options() const { return options_; }

  // What the model is, which of its shortcuts are on, and what they saved in the last forward pass
  // with targets, against the published formulation for the same batch:
  //  {"backbone", "num_classes", "feature_dim", "reduced_dim", "num_parts", "total_params",
  //   "trainable_params", "current_epoch", "using_mahalanobis", "class_prototypes_initialized",
  //   "geometry_dtype", "optimizations": {"small_params", "vectorized_pac", "two_stage_negatives",
  //   "frobenius_soc", "limited_negatives_pool"}, "peak_cache": {"refresh_every", "detections",
  //   "reused"}, "last_step": {"effective_delta": {"min",
  //   "median", "max"}, "active_hinge_share", "empty_share", "seconds": {"backbone", "parts",
  //   "losses"}, "saved": {"factorized_side", "full_side", "distance_bytes"}}}
  // "last_step" is null before the first such pass, and all of it but "seconds" where part contrast
  // is not computed; "peak_cache" is null without one, and its counts are of visits of images.
  // Seconds are those of the host;
  // "factorized_side" is the side of the matrix that is factorized for an image in place of
  // "full_side", and "distance_bytes" what differences of all anchors and negatives would take.
  // Reads from the device.
  Json optimization_info() const;

  nn::ResNet backbone{nullptr};
  torch::nn::Linear projection{nullptr};
  PacoLoss loss{nullptr};
  PeakCache peaks{nullptr};  // null with refresh_every 1

 private:
  struct LastStep {
    torch::Tensor delta, active_share, empty_share;
    double backbone_seconds = 0, parts_seconds = 0, losses_seconds = 0;
    Index anchors = 0, pool = 0;  // 0: there was none
  };
  std::vector<nn::ResNetImpl::Maps> look(const torch::Tensor& view1, const torch::Tensor& view2);
  // Samples the maps of both views into view1 and view2 of `out`. Returns whose peaks were known,
  // bool [batch], or an undefined tensor.
  torch::Tensor sample(const std::vector<nn::ResNetImpl::Maps>& maps, const ShownImages& shown,
                       PacoOutput& out);

  PacoModelOptions options_;
  LastStep last_;
  bool has_warned_ = false;  // of windows that cover the map
};
TORCH_MODULE(PacoModel);

}  // namespace hone::paco
