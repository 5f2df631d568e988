// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "hone/kernels/paco/assignment.h"
#include "hone/kernels/paco/mine_negative.h"
#include "hone/train/paco/geometry.h"
#include "hone/train/paco/matching.h"

namespace hone::paco {

// max(0, x) or ln(1 + eˣ).
enum class Hinge { Relu, Softplus };
// SqrtDim divides distances by sqrt(dim).
enum class DistanceScale { None, SqrtDim };
// Where negatives come from: all parts of both views of the batch, or the parts of one other image
// that is drawn for each image, shared by the batch.
enum class NegativePool { Distinct, OneImage };
enum class Prototypes { Off, Full, Diagonal };
// The divisor of SocMetric::Frobenius. None: as published. Trace: the squared mean of the traces of
// the two covariances; then it is at most 4 and does not change when all parts are scaled, so that
// smaller features do not reduce the loss.
enum class SocScale { None, Trace };
// A class before its first visit. Skip: it has no term. Identity: its covariance is the identity.
enum class PrototypeInit { Skip, Identity };

struct PacoLossOptions {
  Index classes = 0, dim = 0;  // of prototypes and parts; both must be set
  // false: that loss is not computed. Without alignment, prototypes are not updated.
  bool contrasts = true, aligns = true;
  // Part contrast.
  double alpha = 0.2;  // margin, in units of the scaled distance
  kernels::MineMode mining = kernels::MineMode::SemiHard;
  Index screen_top_m = 0;  // 0: all rows compete
  bool mask_owner = true, mask_class = true;
  Hinge hinge = Hinge::Relu;
  DistanceScale distance_scale = DistanceScale::SqrtDim;
  NegativePool pool = NegativePool::Distinct;
  MetricOptions metric = {};
  // Matching.
  MatchSchedule match = {};
  // Replaces metric.floor when parts are matched; 0: metric.floor. Pooled metrics ignore it.
  double match_floor = 0;
  kernels::AssignmentMethod solver = kernels::AssignmentMethod::Auto;
  // Second-order alignment.
  SocMetric soc_metric = SocMetric::Frobenius;
  SocScale soc_scale = SocScale::Trace;  // Frobenius only
  double soc_epsilon = 1e-5;             // added to the diagonal of covariances; above 0
  double beta = 0.05;                    // weight of the prototype term
  Prototypes prototypes = Prototypes::Full;
  PrototypeInit prototype_init = PrototypeInit::Skip;
  double prototype_momentum = 0.9;
};

// Values that are not computed are undefined. Part contrast computes all but soc.
struct PacoLossOutput {
  torch::Tensor pac, soc;  // scalars, differentiable
  torch::Tensor matching;  // int64 [batch, parts]: the view-2 part of each view-1 part
  // Without gradient: the shares of anchors with an active hinge and without an allowed negative,
  // and δ of each image's metric [batch].
  torch::Tensor active_share, empty_share, delta;
};

struct PartContrast {
  torch::Tensor loss;                       // scalar, differentiable
  torch::Tensor active_share, empty_share;  // as in PacoLossOutput
};

// Each part p of view 1 is an anchor. Its positive is the part of view 2 that `matching` assigns to
// it, and its negative is a row of a pool. With the Mahalanobis distance d under the metric of p's
// image,
//   loss = mean over anchors of hinge(d(p, positive) - d(p, negative) + alpha).
// An anchor without an allowed negative counts as 0. Selection has no gradient; the 2 batch parts
// distances of the loss have one. Reads only the options of part contrast except `metric`.
// pool_images as in PacoLoss.
PartContrast part_contrast(const PartMetric& metric, const torch::Tensor& matching,
                           const torch::Tensor& targets, const PacoLossOptions& options,
                           const torch::Tensor& pool_images = {});

// The two losses of PaCo-2 on the parts of two views of each image: part_contrast with the metrics
// of the images, and second-order alignment. With the covariance Σ_v of view v's parts and the
// prototype P_y of the image's class,
//   soc = mean of D²(Σ_1, Σ_2) + beta mean of D²((Σ_1 + Σ_2) / 2, P_y).
// In training, each step then updates the prototypes of the batch's classes: P <- momentum P + (1 -
// momentum) (Σ_1 + Σ_2) / 2.
//
// Without prototypes, the time of a step grows like batch² parts² dim, for mining, and like
// batch parts² (parts + dim).
//
// Buffers: `prototype` [classes, dim, dim] or [classes, dim], `prototype_count` int64 [classes].
class PacoLossImpl : public torch::nn::Cloneable<PacoLossImpl> {
 public:
  explicit PacoLossImpl(const PacoLossOptions& options);
  void reset() override;

  // z1, z2 [batch, parts, dim], targets int64 [batch] in [0, classes). `pool_images`, int64
  // [batch], replaces the images that OneImage draws from LibTorch's generator. For images that
  // `is_paired`, bool [batch], marks, part k of view 1 matches part k of view 2. If parts are not
  // finite, or the sum of all their squares overflows fp32, the losses, all their gradients, shares
  // and δ are NaN, and prototypes are not updated. Throws Error{InvalidArgument} for other shapes
  // and types, and targets out of range on the CPU.
  PacoLossOutput forward(const torch::Tensor& z1, const torch::Tensor& z2,
                         const torch::Tensor& targets, const torch::Tensor& pool_images = {},
                         const torch::Tensor& is_paired = {});
  // Selects the metric that matches parts (MatchSchedule); counts from 0.
  void set_epoch(Index epoch) { epoch_ = epoch; }
  Index epoch() const { return epoch_; }
  const PacoLossOptions& options() const { return options_; }

  torch::Tensor prototype, prototype_count;

 private:
  // Writes everything but soc to `out`.
  void contrast(const torch::Tensor& z1, const torch::Tensor& z2, const torch::Tensor& targets,
                const torch::Tensor& pool_images, const torch::Tensor& is_paired,
                PacoLossOutput& out) const;
  torch::Tensor match(const torch::Tensor& z1, const torch::Tensor& z2,
                      const PartMetric& metric) const;
  torch::Tensor align(const torch::Tensor& z1, const torch::Tensor& z2,
                      const torch::Tensor& targets) const;
  void update_prototypes(const torch::Tensor& z1, const torch::Tensor& z2,
                         const torch::Tensor& targets);

  PacoLossOptions options_;
  Index epoch_ = 0;
};
TORCH_MODULE(PacoLoss);

// Detached: weights are constants with mean 1 and multiply each image's loss. Attached: the mean
// weight, with its gradient, multiplies the mean loss, as published. PacoModel's weights are means
// over both views or, for Attached, weights of view 1.
enum class CeWeight { Off, Detached, Attached };

struct WeightedCeOptions {
  CeWeight weight = CeWeight::Detached;
  double gamma = 0.1;            // in [0, 1]
  double label_smoothing = 0.1;  // in [0, 1)
};

// Returns the mean over images of ((1 - gamma) + gamma ŵ) · cross entropy in nats, ŵ = w / mean w.
// For Attached, returns the mean cross entropy times (1 - gamma) + gamma · mean w. logits [batch,
// classes], targets int64 [batch], weight [batch]. Throws Error{InvalidArgument} for options out of
// range.
torch::Tensor weighted_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets,
                                     const torch::Tensor& weight, const WeightedCeOptions& options);

}  // namespace hone::paco
