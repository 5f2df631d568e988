// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>

#include "hone/core/file/json_io.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/paco/loss.h"
#include "hone/train/paco/peak_cache.h"
#include "hone/train/paco/sampler.h"

namespace hone::paco {

// Limits on the number and size of parts. Larger values are reduced with a warning unless the caps
// are off. The method was published with these limits. Its metrics have at most 2 (parts - 1)
// directions of their own in any dimension.
inline constexpr Index kPartsCap = 4, kDimCap = 64;

// The input of cross entropy: the logits of each view, or, as published, the logits of the mean of
// their features. At inference, a model sees one image and no such mean.
enum class CeViews { Each, Mean };

struct PacoModelOptions {
  // Must be a ResNet; its classes are ignored.
  nn::VisionSpec backbone{.name = "resnet18", .channels = 3};
  nn::ResNetImpl::Stage stage = nn::ResNetImpl::Stage::Last;  // the map that parts are sampled from
  Index classes = 0;                                          // must be set
  Index dim = 64;                                             // size of a part
  bool enforce_caps = true;
  // true: both views go through the backbone as one batch, and share BatchNorm's statistics.
  bool joint_views = false;
  SamplerOptions sampler = {};
  PacoLossOptions loss = {};  // the model sets classes, dim, contrasts and aligns
  WeightedCeOptions ce = {};
  CeViews ce_views = CeViews::Each;
  // Weights of the two losses. A loss with weight 0 is not computed (PacoLossOptions).
  double lambda_pac = 1, eta_soc = 0.1;
  // Above 1: keeps the peaks of `images` images for several visits (PeakCache), on the CPU only.
  Index refresh_every = 1, images = 0;
  std::uint64_t seed = 0;  // seed of new weights
};

// Values that are not computed are undefined.
struct PacoOutput {
  torch::Tensor logits;               // [batch, classes]
  torch::Tensor total, ce, pac, soc;  // scalars; total = ce + lambda_pac pac + eta_soc soc
  // The mean over the last map of each existing view, [batch, channels].
  torch::Tensor features1, features2;
  SampledParts view1, view2;
  PacoLossOutput parts;
};

// A ResNet with its classifier, a projection of parts without bias, and PacoLoss. Parameters and
// buffers: backbone.*, projection.weight [dim, channels of the stage], loss.prototype,
// loss.prototype_count and, with refresh_every above 1, those of PeakCache as peaks.*. Autocast
// only affects the backbone.
class PacoModelImpl : public torch::nn::Module {
 public:
  // Throws Error{InvalidArgument} for a backbone that is not a ResNet and options out of range.
  explicit PacoModelImpl(PacoModelOptions options);
  // Uses this backbone, which must have a classifier; ignores `options.backbone` and `classes`.
  PacoModelImpl(nn::ResNet network, PacoModelOptions options);

  // Images [batch, channels, height, width]. One view: computes the logits. Two views: computes the
  // logits of the mean of their features and, with targets int64 [batch], the losses. If `shown`
  // identifies the images, uses their cached peaks, matches those parts in order, and counts the
  // visits. Throws Error{InvalidArgument} for targets without a second view, and like PeakCache.
  PacoOutput forward(const torch::Tensor& view1, const torch::Tensor& view2 = {},
                     const torch::Tensor& targets = {}, const ShownImages& shown = {});
  // Selects the metric that matches parts; counts from 0.
  void set_epoch(Index epoch) { loss->set_epoch(epoch); }
  // After the caps.
  const PacoModelOptions& options() const { return options_; }

  // Describes the model, its enabled shortcuts, and their savings in the last forward pass with
  // targets, compared with the published formulation for the same batch:
  //  {"backbone", "num_classes", "feature_dim", "reduced_dim", "num_parts", "total_params",
  //   "trainable_params", "current_epoch", "using_mahalanobis", "class_prototypes_initialized",
  //   "geometry_dtype", "optimizations": {"small_params", "vectorized_pac", "two_stage_negatives",
  //   "frobenius_soc", "limited_negatives_pool"}, "peak_cache": {"refresh_every", "detections",
  //   "reused"}, "last_step": {"effective_delta": {"min",
  //   "median", "max"}, "active_hinge_share", "empty_share", "seconds": {"backbone", "parts",
  //   "losses"}, "saved": {"factorized_side", "full_side", "distance_bytes"}}}
  // "last_step" is null before the first such pass. Without part contrast, all of it except
  // "seconds" is null. "peak_cache" is null without a cache; its counts are visits of images.
  // Seconds are host time. "factorized_side" is the side of the matrix that is factorized per image
  // instead of "full_side". "distance_bytes" is the memory that differences of all anchors and
  // negatives would take. Waits for the device.
  Json optimization_info() const;

  nn::ResNet backbone{nullptr};
  torch::nn::Linear projection{nullptr};
  PacoLoss loss{nullptr};
  PeakCache peaks{nullptr};  // null with refresh_every 1

 private:
  struct LastStep {
    torch::Tensor delta, active_share, empty_share;
    double backbone_seconds = 0, parts_seconds = 0, losses_seconds = 0;
    Index anchors = 0, pool = 0;  // 0: no step
  };
  std::vector<nn::ResNetImpl::Maps> look(const torch::Tensor& view1, const torch::Tensor& view2);
  // Samples the maps of both views into view1 and view2 of `out`. Returns the images with known
  // peaks, bool [batch], or an undefined tensor.
  torch::Tensor sample(const std::vector<nn::ResNetImpl::Maps>& maps, const ShownImages& shown,
                       PacoOutput& out);

  PacoModelOptions options_;
  LastStep last_;
  bool has_warned_ = false;  // about windows that cover the map
};
TORCH_MODULE(PacoModel);

}  // namespace hone::paco
