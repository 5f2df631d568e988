// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/trace.h"

namespace hone::paco {
namespace {

using torch::Tensor;

constexpr std::string_view kModel = "PacoModel";

void cap(std::string_view what, Index most, Index& value) {
  if (value <= most) return;
  log_warning(
      concat("part contrast: ", what, " = ", value, " is reduced to ", most,
             ", as more cost time and bring little; turn paco.caps (enforce_caps) off to keep it"));
  value = most;
}

nn::ResNet make_backbone(const PacoModelOptions& options) {
  HONE_CHECK(nn::find_resnet(options.backbone.name) != nullptr, kModel, "a ResNet as backbone",
             options.backbone.name);
  HONE_CHECK(options.classes > 1, kModel, "at least 2 classes", options.classes);
  nn::VisionSpec spec = options.backbone;
  spec.classes = options.classes;
  return nn::ResNet(nn::resolve(spec), options.seed);
}

PacoModelOptions settle(PacoModelOptions options, const nn::VisionSpec& spec) {
  HONE_CHECK(spec.classes > 1, kModel, "a backbone of at least 2 classes", spec.classes);
  HONE_CHECK(options.sampler.parts > 0, kModel, "parts above 0", options.sampler.parts);
  HONE_CHECK(options.dim > 0, kModel, "dim above 0", options.dim);
  for (const double weight : {options.lambda_pac, options.eta_soc}) {
    HONE_CHECK(std::isfinite(weight) && weight >= 0, kModel, "finite weights of at least 0",
               weight);
  }
  HONE_CHECK(options.refresh_every > 0, kModel, "refresh_every above 0", options.refresh_every);
  if (options.enforce_caps) {
    cap("parts", kPartsCap, options.sampler.parts);
    cap("dim", kDimCap, options.dim);
  }
  if (options.sampler.window % 2 == 0) {
    log_warning(concat("part contrast: a window of ", options.sampler.window, " acts as one of ",
                       options.sampler.window + 1));
  }
  options.backbone = spec;
  options.classes = spec.classes;
  options.loss.classes = options.classes;
  options.loss.dim = options.dim;
  options.loss.contrasts = options.lambda_pac > 0;
  options.loss.aligns = options.eta_soc > 0;
  return options;
}

// The time since the last call.
class StopWatch {
 public:
  double lap() {
    const std::int64_t before = std::exchange(at_, steady_clock().now_ns());
    return seconds_between(before, at_);
  }

 private:
  std::int64_t at_ = steady_clock().now_ns();
};

double number(const Tensor& scalar) { return scalar.item<double>(); }

}  // namespace

PacoModelImpl::PacoModelImpl(PacoModelOptions options)
    : PacoModelImpl(make_backbone(options), options) {}

PacoModelImpl::PacoModelImpl(nn::ResNet network, PacoModelOptions options)
    : options_(settle(std::move(options), network->spec())) {
  backbone = register_module("backbone", std::move(network));
  const Index channels = backbone->feature_channels(options_.stage);
  projection = register_module(
      "projection",
      torch::nn::Linear(torch::nn::LinearOptions(channels, options_.dim).bias(false)));
  loss = register_module("loss", PacoLoss(options_.loss));
  if (options_.refresh_every > 1) {
    peaks = register_module(
        "peaks", PeakCache(options_.images, options_.sampler.parts, options_.refresh_every));
  }
  const torch::NoGradGuard no_grad;
  const nn::TensorSource source = nn::new_tensors(options_.seed + 1);
  projection->weight.copy_(source({.name = "projection",
                                   .sizes = {options_.dim, channels},
                                   .std = std::sqrt(2 / static_cast<double>(channels))}));
}

std::vector<nn::ResNetImpl::Maps> PacoModelImpl::look(const Tensor& view1, const Tensor& view2) {
  if (!view2.defined()) return {backbone->forward_maps(view1)};
  if (!options_.joint_views) return {backbone->forward_maps(view1), backbone->forward_maps(view2)};
  const auto both = backbone->forward_maps(at::cat({view1, view2}));
  const auto before = both.penultimate.chunk(2), last = both.last.chunk(2);
  return {{before[0], last[0]}, {before[1], last[1]}};
}

Tensor PacoModelImpl::sample(const std::vector<nn::ResNetImpl::Maps>& maps,
                             const ShownImages& shown, PacoOutput& out) {
  const bool is_last = options_.stage == nn::ResNetImpl::Stage::Last;
  const Tensor &map1 = is_last ? maps[0].last : maps[0].penultimate,
               &map2 = is_last ? maps[1].last : maps[1].penultimate;
  const bool keeps = !peaks.is_empty() && !shown.images.empty();
  const MapSize size{map1.size(2), map1.size(3)};
  const Index window = 2 * (options_.sampler.window / 2) + 1;
  if (window > std::min(map1.size(2), map1.size(3)) && !std::exchange(has_warned_, true)) {
    log_warning(concat(
        "part contrast: windows of ", window, " cells cover the map of ", map1.size(2), " x ",
        map1.size(3), ", so that parts are nearly the same: lower paco.window (window)",
        is_last ? ", take the penultimate map (paco.stage)" : "", " or take larger images"));
  }
  KnownPeaks known;
  if (keeps) known = peaks->recall(shown, size);
  out.view1 = sample_parts(map1, options_.sampler, {known.cells1, known.is_known});
  out.view2 = sample_parts(map2, options_.sampler, {known.cells2, known.is_known});
  if (keeps) peaks->end_visit(shown, size, known, out.view1.peaks);
  return known.is_known;
}

PacoOutput PacoModelImpl::forward(const Tensor& view1, const Tensor& view2, const Tensor& targets,
                                  const ShownImages& shown) {
  const bool has_two = view2.defined();
  HONE_CHECK(has_two || !targets.defined(), kModel, "two views with targets", "one");
  HONE_CHECK(!has_two || view2.sizes().equals(view1.sizes()), kModel,
             concat("a second view of ", c10::str(view1.sizes())),
             has_two ? c10::str(view2.sizes()) : std::string("none"));
  StopWatch watch;
  LastStep step;
  const auto maps = look(view1, view2);
  step.backbone_seconds = watch.lap();
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType type = projection->weight.scalar_type();
  PacoOutput out;
  out.features1 = maps[0].last.mean({2, 3}, /*keepdim=*/false, type);
  if (has_two) out.features2 = maps[1].last.mean({2, 3}, false, type);
  out.logits = backbone->classify(has_two ? (out.features1 + out.features2) / 2 : out.features1);
  if (!targets.defined()) return out;
  const Tensor is_paired = sample(maps, shown, out);
  const auto project = [&](const Tensor& parts) { return projection->forward(parts.to(type)); };
  const Tensor z1 = project(out.view1.parts), z2 = project(out.view2.parts);
  step.parts_seconds = watch.lap();
  out.parts = loss->forward(z1, z2, targets, /*pool_images=*/{}, is_paired);
  out.pac = out.parts.pac;
  out.soc = out.parts.soc;
  const bool published = options_.ce.weight == CeWeight::Attached;
  const Tensor weight = published ? out.view1.weight : (out.view1.weight + out.view2.weight) / 2;
  const auto entropy = [&](const Tensor& logits) {
    return weighted_cross_entropy(logits, targets, weight, options_.ce);
  };
  out.ce = options_.ce_views == CeViews::Mean ? entropy(out.logits)
                                              : (entropy(backbone->classify(out.features1)) +
                                                 entropy(backbone->classify(out.features2))) /
                                                    2;
  out.total = out.ce;
  if (out.pac.defined()) out.total = out.total + options_.lambda_pac * out.pac;
  if (out.soc.defined()) out.total = out.total + options_.eta_soc * out.soc;
  step.losses_seconds = watch.lap();
  step.delta = out.parts.delta;
  step.active_share = out.parts.active_share;
  step.empty_share = out.parts.empty_share;
  step.anchors = z1.size(0) * z1.size(1);
  step.pool = 2 * step.anchors;
  last_ = std::move(step);
  return out;
}

Json PacoModelImpl::optimization_info() const {
  Index parameters = 0, trainable = 0;
  for (const Tensor& parameter : this->parameters()) {
    parameters += parameter.numel();
    if (parameter.requires_grad()) trainable += parameter.numel();
  }
  const PacoLossOptions& options = loss->options();
  const bool small = options_.sampler.parts <= kPartsCap && options_.dim <= kDimCap;
  Json info = {{"backbone", options_.backbone.name},
               {"num_classes", options_.classes},
               {"feature_dim", backbone->feature_channels(options_.stage)},
               {"reduced_dim", options_.dim},
               {"num_parts", options_.sampler.parts},
               {"total_params", parameters},
               {"trainable_params", trainable},
               {"current_epoch", loss->epoch()},
               {"using_mahalanobis", options.match.at(loss->epoch()) == MatchMetric::Mahalanobis},
               {"class_prototypes_initialized", loss->prototype_count.gt(0).sum().item<Index>()},
               {"geometry_dtype", projection->weight.is_cpu() ? "f64" : "f32"},
               {"optimizations",
                {{"small_params", small},
                 {"vectorized_pac", true},
                 {"two_stage_negatives", options.screen_top_m > 0},
                 {"frobenius_soc", options.soc_metric == SocMetric::Frobenius},
                 {"limited_negatives_pool", options.pool == NegativePool::OneImage}}},
               {"peak_cache", peaks.is_empty() ? Json() : peaks->report()}};
  info["last_step"] = nullptr;
  if (last_.anchors == 0) return info;
  Json step = {{"effective_delta", nullptr},
               {"active_hinge_share", nullptr},
               {"empty_share", nullptr},
               {"seconds",
                {{"backbone", last_.backbone_seconds},
                 {"parts", last_.parts_seconds},
                 {"losses", last_.losses_seconds}}},
               {"saved", nullptr}};
  if (last_.delta.defined()) {
    const Index dim = options_.dim;
    step["effective_delta"] = {{"min", number(last_.delta.min())},
                               {"median", number(last_.delta.median())},
                               {"max", number(last_.delta.max())}};
    step["active_hinge_share"] = number(last_.active_share);
    step["empty_share"] = number(last_.empty_share);
    step["saved"] = {
        {"factorized_side", 2 * (options_.sampler.parts - 1)},
        {"full_side", dim},
        {"distance_bytes", last_.anchors * last_.pool * dim * static_cast<Index>(sizeof(double))}};
  }
  info["last_step"] = std::move(step);
  return info;
}

}  // namespace hone::paco
