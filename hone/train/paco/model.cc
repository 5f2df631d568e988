// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/model.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::paco {
namespace {

using torch::Tensor;

constexpr std::string_view kModel = "PacoModel";

void cap(std::string_view what, Index most, Index& value) {
  if (value <= most) return;
  log_warning(concat("PacoModel: ", what, " = ", value, " is reduced to ", most,
                     " (enforce_caps = false keeps it)"));
  value = most;
}

PacoModelOptions settle(PacoModelOptions options) {
  HONE_CHECK(nn::find_resnet(options.backbone.name) != nullptr, kModel, "a ResNet as backbone",
             options.backbone.name);
  HONE_CHECK(options.classes > 1, kModel, "at least 2 classes", options.classes);
  HONE_CHECK(options.sampler.parts > 0, kModel, "parts above 0", options.sampler.parts);
  HONE_CHECK(options.dim > 0, kModel, "dim above 0", options.dim);
  for (const double weight : {options.lambda_pac, options.eta_soc}) {
    HONE_CHECK(std::isfinite(weight) && weight >= 0, kModel, "finite weights of at least 0",
               weight);
  }
  if (options.enforce_caps) {
    cap("parts", kPartsCap, options.sampler.parts);
    cap("dim", kDimCap, options.dim);
  }
  options.backbone.classes = 0;
  options.loss.classes = options.classes;
  options.loss.dim = options.dim;
  return options;
}

struct View {
  Tensor map, mean;
};

}  // namespace

PacoModelImpl::PacoModelImpl(PacoModelOptions options) : options_(settle(std::move(options))) {
  backbone = register_module("backbone", nn::ResNet(nn::resolve(options_.backbone), options_.seed));
  const Index channels = backbone->feature_channels(options_.stage);
  const nn::TensorSource source = nn::new_tensors(options_.seed + 1);
  const auto normal = [&](const char* name, Index rows, double variance) {
    return source({.name = name,
                   .sizes = {rows, channels},
                   .std = std::sqrt(variance / static_cast<double>(channels))});
  };
  projection = register_module(
      "projection",
      torch::nn::Linear(torch::nn::LinearOptions(channels, options_.dim).bias(false)));
  classifier = register_module("classifier", torch::nn::Linear(channels, options_.classes));
  loss = register_module("loss", PacoLoss(options_.loss));
  const torch::NoGradGuard no_grad;
  projection->weight.copy_(normal("projection", options_.dim, 2));
  classifier->weight.copy_(normal("classifier", options_.classes, 1));
  classifier->bias.zero_();
}

PacoOutput PacoModelImpl::forward(const Tensor& view1, const Tensor& view2, const Tensor& targets) {
  const bool has_two = view2.defined();
  HONE_CHECK(has_two || !targets.defined(), kModel, "two views with targets", "one");
  HONE_CHECK(!has_two || view2.sizes().equals(view1.sizes()), kModel,
             concat("a second view of ", c10::str(view1.sizes())),
             has_two ? c10::str(view2.sizes()) : std::string("none"));
  std::vector<View> views;
  const auto look = [&](const Tensor& images) {
    const Tensor map = backbone->forward_features(images, options_.stage);
    views.push_back({map, map.mean({2, 3})});
  };
  if (has_two && options_.joint_views) {
    look(at::cat({view1, view2}));
    const View both = views.front();
    views.clear();
    for (const Index half : {0, 1}) {
      views.push_back({both.map.chunk(2)[static_cast<std::size_t>(half)],
                       both.mean.chunk(2)[static_cast<std::size_t>(half)]});
    }
  } else {
    look(view1);
    if (has_two) look(view2);
  }
  PacoOutput out;
  out.features = has_two ? (views[0].mean + views[1].mean) / 2 : views[0].mean;
  out.logits = classifier->forward(out.features);
  if (!targets.defined()) return out;
  out.view1 = sample_parts(views[0].map, options_.sampler);
  out.view2 = sample_parts(views[1].map, options_.sampler);
  const auto project = [&](const Tensor& parts) { return projection->forward(parts); };
  out.parts = loss->forward(project(out.view1.parts), project(out.view2.parts), targets);
  out.pac = out.parts.pac;
  out.soc = out.parts.soc;
  out.ce = weighted_cross_entropy(out.logits, targets, (out.view1.weight + out.view2.weight) / 2,
                                  options_.ce);
  out.total = out.ce + options_.lambda_pac * out.pac + options_.eta_soc * out.soc;
  return out;
}

}  // namespace hone::paco
