// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/loss.h"

#include <ATen/ATen.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/kernels/paco/prototype.h"
#include "hone/train/interop.h"
#include "hone/train/paco/mining.h"

namespace hone::paco {
namespace {

using torch::Tensor;

constexpr std::string_view kLoss = "PacoLoss";
// cdist's mode without products of rows, which cancel.
constexpr std::int64_t kCdistByDifferences = 2;

void check_options(const PacoLossOptions& options) {
  HONE_CHECK(options.classes > 0, kLoss, "classes above 0", options.classes);
  HONE_CHECK(options.dim > 0, kLoss, "dim above 0", options.dim);
  HONE_CHECK(std::isfinite(options.alpha) && options.alpha >= 0, kLoss,
             "a finite alpha of at least 0", options.alpha);
  HONE_CHECK(options.screen_top_m >= 0, kLoss, "screen_top_m of at least 0", options.screen_top_m);
  HONE_CHECK(std::isfinite(options.match_floor) && options.match_floor >= 0, kLoss,
             "a finite match_floor of at least 0", options.match_floor);
  HONE_CHECK(std::isfinite(options.soc_epsilon) && options.soc_epsilon > 0, kLoss,
             "a finite soc_epsilon above 0", options.soc_epsilon);
  HONE_CHECK(std::isfinite(options.beta) && options.beta >= 0, kLoss, "a finite beta of at least 0",
             options.beta);
  HONE_CHECK(options.prototype_momentum >= 0 && options.prototype_momentum <= 1, kLoss,
             "prototype_momentum in [0, 1]", options.prototype_momentum);
}

void check_targets(const Tensor& targets, Index batch, Index classes) {
  HONE_CHECK(targets.defined() && targets.scalar_type() == at::kLong && targets.dim() == 1 &&
                 targets.size(0) == batch,
             kLoss, concat(batch, " int64 targets"),
             targets.defined()
                 ? concat(c10::str(targets.sizes()), " of ", c10::toString(targets.scalar_type()))
                 : std::string("none"));
  if (!targets.is_cpu() || batch == 0) return;  // reading them would wait for the device
  const Index least = targets.min().item<Index>(), largest = targets.max().item<Index>();
  HONE_CHECK(least >= 0, kLoss, "targets of at least 0", least);
  HONE_CHECK(largest < classes, kLoss, concat("targets below ", classes), largest);
}

// rows [batch, parts, dim] at index [batch, parts].
Tensor pick_parts(const Tensor& rows, const Tensor& index) {
  return rows.gather(1, index.unsqueeze(2).expand({-1, -1, rows.size(2)}));
}

// The trace of the covariance of z [batch, parts, dim] plus epsilon on its diagonal: [batch].
Tensor covariance_trace(const Tensor& z, double epsilon) {
  const auto freedom = static_cast<double>(std::max<Index>(z.size(1) - 1, 1));
  const Tensor centered = z - z.mean(1, /*keepdim=*/true);
  return centered.square().sum({1, 2}) / freedom + epsilon * static_cast<double>(z.size(2));
}

// 0; NaN where parts are not finite or the sum of their squares is not in fp32. A scalar of their
// type and device.
Tensor fault_of(const Tensor& z1, const Tensor& z2) {
  const torch::NoGradGuard no_grad;
  const auto squares = [](const Tensor& z) { return z.to(at::kDouble).square().sum(); };
  const Tensor is_sound = squares(z1) + squares(z2) <= std::numeric_limits<float>::max();
  return at::where(is_sound, 0.0, std::numeric_limits<double>::quiet_NaN()).to(z1.scalar_type());
}

}  // namespace

PartContrast part_contrast(const PartMetric& metric, const Tensor& matching, const Tensor& targets,
                           const PacoLossOptions& options, const Tensor& pool_images) {
  PartContrast out;
  const Tensor &anchor = metric.z1, positive = pick_parts(metric.z2, matching);
  const Tensor toward = anchor - positive;
  MinedNegatives mined;
  {
    const torch::NoGradGuard no_grad;
    mined = mine_negatives(metric, ridge_distance_sq(metric, toward), targets, pool_images,
                           {.mode = options.mining,
                            .mask_owner = options.mask_owner,
                            .mask_class = options.mask_class,
                            .top_m = options.screen_top_m,
                            .draws_images = options.pool == NegativePool::OneImage});
  }
  const Tensor pool = at::cat({metric.z1.flatten(0, 1), metric.z2.flatten(0, 1)});
  const Tensor negative = pool.index_select(0, mined.row.flatten()).reshape_as(anchor);
  const Tensor q = ridge_distance_sq(metric, at::cat({toward, anchor - negative}, 1));
  const bool scaled = options.distance_scale == DistanceScale::SqrtDim;
  const double scale = scaled ? 1 / std::sqrt(static_cast<double>(anchor.size(2))) : 1;
  const auto distances = (root_of(q) * scale).chunk(2, 1);
  const Tensor excess = distances[0] - distances[1] + options.alpha;
  const Tensor hinge = options.hinge == Hinge::Relu ? excess.relu() : at::softplus(excess);
  const Tensor found = mined.found.to(excess.scalar_type());
  out.loss = at::where(mined.found, hinge, at::zeros_like(hinge)).mean();
  out.active_share = ((excess.detach() > 0).to(found.scalar_type()) * found).mean();
  out.empty_share = 1 - found.mean();
  return out;
}

PacoLossImpl::PacoLossImpl(const PacoLossOptions& options) : options_(options) {
  check_options(options_);
  PacoLossImpl::reset();
}

void PacoLossImpl::reset() {
  std::vector<Index> sizes{options_.classes, options_.dim};
  if (options_.prototypes == Prototypes::Off) sizes = {0, options_.dim};
  if (options_.prototypes == Prototypes::Full) sizes.push_back(options_.dim);
  prototype = register_buffer("prototype", at::zeros(sizes, at::kFloat));
  prototype_count = register_buffer("prototype_count", at::zeros({options_.classes}, at::kLong));
  if (options_.prototypes == Prototypes::Off || options_.prototype_init == PrototypeInit::Skip) {
    return;
  }
  const torch::NoGradGuard no_grad;
  if (options_.prototypes == Prototypes::Diagonal) {
    prototype.fill_(1);
  } else {
    prototype.copy_(at::eye(options_.dim, prototype.options()));
  }
}

Tensor PacoLossImpl::match(const Tensor& z1, const Tensor& z2, const PartMetric& metric) const {
  const torch::NoGradGuard no_grad;
  if (options_.match.at(epoch_) == MatchMetric::Cosine) {
    return match_parts(cosine_costs(metric.z1, metric.z2), options_.solver);
  }
  PartMetric own = metric;
  if (options_.match_floor > 0 && options_.metric.pooled == 0) {
    MetricOptions options = options_.metric;
    options.floor = options_.match_floor;
    own = part_metric(z1, z2, options);
  }
  const Tensor parts = at::cat({own.z1, own.z2}, 1);
  // Without their mean, which would cost the differences of coordinates digits.
  const Tensor placed = ridge_coordinates(own, parts - parts.mean(1, true)).to(at::kDouble);
  const auto views = placed.chunk(2, 1);
  return match_parts(at::cdist(views[0], views[1], 2, kCdistByDifferences), options_.solver);
}

Tensor PacoLossImpl::align(const Tensor& z1, const Tensor& z2, const Tensor& targets) const {
  const SocMetric metric = options_.soc_metric;
  const double epsilon = options_.soc_epsilon;
  const bool scaled = options_.soc_scale == SocScale::Trace && metric == SocMetric::Frobenius;
  Tensor soc = covariance_distance(metric, z1, z2, epsilon), trace1, trace2;
  if (scaled) {
    trace1 = covariance_trace(z1, epsilon);
    trace2 = covariance_trace(z2, epsilon);
    soc = soc / ((trace1 + trace2) / 2).square();
  }
  soc = soc.mean();
  if (options_.prototypes == Prototypes::Off || options_.beta == 0) return soc;
  Tensor label = targets;
  if (options_.prototype_init == PrototypeInit::Skip) {
    const Tensor seen = prototype_count.index_select(0, targets) > 0;
    label = at::where(seen, targets, at::full_like(targets, -1));
  }
  Tensor to_class = prototype_distance(metric, z1, z2, epsilon, prototype, label);
  if (scaled) {
    const Tensor diagonals =
        options_.prototypes == Prototypes::Full ? prototype.diagonal(0, 1, 2) : prototype;
    const Tensor trace = diagonals.index_select(0, targets).sum(1);
    to_class = to_class / ((trace1 + trace2) / 4 + trace / 2).square();
  }
  return soc + options_.beta * to_class.mean();
}

// Reads and writes those of the batch's classes alone.
void PacoLossImpl::update_prototypes(const Tensor& z1, const Tensor& z2, const Tensor& targets) {
  const torch::NoGradGuard no_grad;
  const auto host = [](const Tensor& tensor, at::ScalarType type) {
    return tensor.detach().to(at::kCPU, type).contiguous();
  };
  const Tensor a = host(z1, at::kDouble), b = host(z2, at::kDouble);
  const auto [classes, row] = at::_unique(targets, /*sorted=*/true, /*return_inverse=*/true);
  const Tensor label = host(row, at::kLong);
  const Tensor matrices = host(prototype.index_select(0, classes), at::kDouble);
  const Tensor counts = host(prototype_count.index_select(0, classes), at::kLong);
  kernels::update_prototypes({.batch = a.size(0),
                              .parts = a.size(1),
                              .dim = a.size(2),
                              .z1 = a.data_ptr<double>(),
                              .z2 = b.data_ptr<double>(),
                              .epsilon = options_.soc_epsilon},
                             {.classes = classes.size(0),
                              .label = label.data_ptr<std::int64_t>(),
                              .momentum = options_.prototype_momentum,
                              .diagonal = options_.prototypes == Prototypes::Diagonal,
                              .matrices = matrices.data_ptr<double>(),
                              .counts = counts.data_ptr<std::int64_t>()},
                             libtorch_executor());
  prototype.index_copy_(0, classes, matrices.to(prototype.options()));
  prototype_count.index_copy_(0, classes, counts.to(prototype_count.options()));
}

void PacoLossImpl::contrast(const Tensor& z1, const Tensor& z2, const Tensor& targets,
                            const Tensor& pool_images, const Tensor& is_paired,
                            PacoLossOutput& out) const {
  const PartMetric metric = part_metric(z1, z2, options_.metric);
  out.matching = match(z1, z2, metric);
  if (is_paired.defined()) {
    HONE_CHECK(is_paired.scalar_type() == at::kBool && is_paired.sizes().equals(targets.sizes()),
               kLoss, concat("is_paired of bool ", c10::str(targets.sizes())),
               concat(c10::toString(is_paired.scalar_type()), " ", c10::str(is_paired.sizes())));
    const Tensor in_order = at::arange(z1.size(1), out.matching.options());
    out.matching = at::where(is_paired.unsqueeze(1), in_order, out.matching);
  }
  const PartContrast contrast = part_contrast(metric, out.matching, targets, options_, pool_images);
  out.pac = contrast.loss;
  out.active_share = contrast.active_share;
  out.empty_share = contrast.empty_share;
  out.delta = metric.delta.detach();
}

PacoLossOutput PacoLossImpl::forward(const Tensor& z1, const Tensor& z2, const Tensor& targets,
                                     const Tensor& pool_images, const Tensor& is_paired) {
  check_parts(z1, z2);
  HONE_CHECK(z1.size(2) == options_.dim, kLoss, concat("parts of dim ", options_.dim), z1.size(2));
  HONE_CHECK(z1.size(0) > 0, kLoss, "at least one image", z1.size(0));
  check_targets(targets, z1.size(0), options_.classes);
  // Kernels refuse what is not finite: they get zeros instead, and the results the fault.
  const Tensor fault = fault_of(z1, z2), is_sound = fault == 0;
  const Tensor fault_with_grad = fault * (z1.mean() + z2.mean());
  const Tensor sound1 = at::where(is_sound, z1, 0), sound2 = at::where(is_sound, z2, 0);
  PacoLossOutput out;
  if (options_.contrasts) {
    contrast(sound1, sound2, targets, pool_images, is_paired, out);
    out.pac = out.pac + fault_with_grad;
    for (Tensor* figure : {&out.active_share, &out.empty_share, &out.delta}) {
      *figure = *figure + fault;
    }
  }
  if (!options_.aligns) return out;
  out.soc = align(sound1, sound2, targets) + fault_with_grad;
  const bool keeps = is_training() && options_.prototypes != Prototypes::Off;
  if (keeps && is_sound.item<bool>()) update_prototypes(sound1, sound2, targets);
  return out;
}

Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& weight,
                              const WeightedCeOptions& options) {
  constexpr std::string_view kCe = "weighted_cross_entropy";
  HONE_CHECK(options.gamma >= 0 && options.gamma <= 1, kCe, "gamma in [0, 1]", options.gamma);
  HONE_CHECK(options.label_smoothing >= 0 && options.label_smoothing < 1, kCe,
             "label_smoothing in [0, 1)", options.label_smoothing);
  const Tensor each = at::cross_entropy_loss(logits, targets, /*weight=*/{}, at::Reduction::None,
                                             /*ignore_index=*/-100, options.label_smoothing);
  const double share = options.gamma;
  switch (options.weight) {
    case CeWeight::Off:
      break;
    case CeWeight::Detached: {
      const Tensor constant = weight.detach().to(each.scalar_type());
      const Tensor relative = constant / constant.mean().clamp_min(1e-30);
      return (each * ((1 - share) + share * relative)).mean();
    }
    case CeWeight::Attached:
      return each.mean() * ((1 - share) + share * weight.mean());
  }
  return each.mean();
}

}  // namespace hone::paco
