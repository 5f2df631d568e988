// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/objective.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "hone/core/check.h"
#include "hone/train/loss/supcon.h"
#include "hone/train/loss/triplet.h"
#include "hone/train/paco/model.h"

namespace hone::task {
namespace {

using torch::Tensor;
using trainer::MetricsRow;

constexpr Index kContrastDim = 128;  // of SupCon's projection (Khosla et al., 2020)

nn::ResNet resnet_of(const nn::VisionNet& net, const LossConfig& loss) {
  const auto resnet = std::dynamic_pointer_cast<nn::ResNetImpl>(net.ptr());
  HONE_CHECK(resnet != nullptr, "model.name", concat("a ResNet for loss.method = ", loss.method),
             net->spec().name);
  return resnet;
}

// Cross entropy of all views, which go through the network as one batch, and for SupCon and
// triplets a loss of their features.
class FeatureObjective final : public Objective {
 public:
  FeatureObjective(const LossConfig& loss, nn::VisionNet net, std::uint64_t seed)
      : loss_(loss), net_(std::move(net)) {
    if (loss_.method == "ce") return;
    const Index channels = resnet_of(net_, loss_)->feature_channels();
    if (loss_.method != "supcon") return;
    projection_ = torch::nn::Linear(torch::nn::LinearOptions(channels, kContrastDim).bias(false));
    const torch::NoGradGuard no_grad;
    projection_->weight.copy_(
        nn::new_tensors(seed + 1)({.name = "projection",
                                   .sizes = {kContrastDim, channels},
                                   .std = std::sqrt(1 / static_cast<double>(channels))}));
    both_ = std::make_shared<torch::nn::Module>();
    both_->register_module("backbone", net_.ptr());
    both_->register_module("projection", projection_);
  }

  torch::nn::Module& module() override { return both_ ? *both_ : *net_.ptr(); }
  Index views() const override { return loss_.views; }

  ObjectiveLoss loss(const ViewBatch& batch) override {
    const bool is_one = batch.views.size() == 1;
    const Tensor images = is_one ? batch.views[0] : at::cat(batch.views);
    const Tensor targets = is_one ? batch.targets : batch.targets.repeat({std::ssize(batch.views)});
    const auto of_first = [&](const Tensor& rows) {
      return rows.narrow(0, 0, batch.targets.size(0));
    };
    const auto [logits, features] = net_->forward_with_features(images);
    ObjectiveLoss out;
    out.mean = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Mean, -100,
                                      loss_.label_smoothing);
    out.logits = of_first(logits);
    if (features.defined()) out.features = of_first(features);
    if (loss_.method == "ce") return out;
    out.terms.push_back({&MetricsRow::ce, out.mean.detach()});
    const Tensor aux = contrast(features, targets, out.terms);
    out.terms.push_back({&MetricsRow::aux, aux.detach()});
    out.mean = out.mean + loss_.aux_weight * aux;
    return out;
  }

 private:
  Tensor contrast(const Tensor& features, const Tensor& targets,
                  std::vector<trainer::LossTerm>& terms) {
    if (loss_.method == "supcon") {
      return loss::supervised_contrastive(projection_->forward(features), targets,
                                          {.temperature = loss_.temperature});
    }
    const loss::TripletLoss triplet =
        loss::batch_hard_triplet(features, targets, {.margin = loss_.margin});
    terms.push_back({&MetricsRow::active_share, triplet.active_share});
    return triplet.loss;
  }

  LossConfig loss_;
  nn::VisionNet net_;
  torch::nn::Linear projection_{nullptr};
  std::shared_ptr<torch::nn::Module> both_;  // net_ and projection_, or null
};

// The loss of a student over all views, which go through both networks as one batch.
class DistillationObjective final : public Objective {
 public:
  DistillationObjective(nn::VisionNet net, std::shared_ptr<const VisionTeacher> teacher,
                        Index views, const loss::DistillationOptions& options)
      : net_(std::move(net)), teacher_(std::move(teacher)), views_(views), options_(options) {}

  torch::nn::Module& module() override { return *net_.ptr(); }
  Index views() const override { return views_; }

  ObjectiveLoss loss(const ViewBatch& batch) override {
    const bool is_one = batch.views.size() == 1;
    const Tensor images = is_one ? batch.views[0] : at::cat(batch.views);
    const Tensor targets = is_one ? batch.targets : batch.targets.repeat({std::ssize(batch.views)});
    const auto [logits, features] = net_->forward_with_features(images);
    const Tensor taught = options_.alpha > 0 ? teacher_->logits(images) : Tensor();
    const loss::DistillationSums sums = loss::distillation_sums(logits, taught, targets, options_);
    const auto rows = static_cast<double>(sums.rows);
    ObjectiveLoss out;
    out.mean = sums.total / rows;
    const auto of_first = [&](const Tensor& all) {
      return all.narrow(0, 0, batch.targets.size(0));
    };
    out.logits = of_first(logits);
    if (features.defined()) out.features = of_first(features);
    if (sums.soft.defined()) {
      out.terms.push_back({&MetricsRow::soft, sums.soft.detach() / rows});
      out.terms.push_back({&MetricsRow::ce, sums.hard.detach() / rows});
    }
    return out;
  }

 private:
  nn::VisionNet net_;
  std::shared_ptr<const VisionTeacher> teacher_;
  Index views_;
  loss::DistillationOptions options_;
};

class PartObjective final : public Objective {
 public:
  PartObjective(const LossConfig& loss, const PacoConfig& paco, const nn::VisionNet& net,
                std::uint64_t seed, Index images)
      : model_(resnet_of(net, loss), options_of(loss, paco, seed, images)) {
    const paco::PacoModelOptions& options = model_->options();
    const auto [rows, columns] = nn::map_cells(net->spec(), options.stage);
    HONE_CHECK(options.sampler.parts <= rows * columns, "paco.parts",
               concat("at most the ", rows, " x ", columns, " cells of the map of paco.stage = ",
                      paco.stage, ", which larger images (data.image_size, augment.side) raise"),
               options.sampler.parts);
  }

  torch::nn::Module& module() override { return *model_; }
  Index views() const override { return 2; }

  ObjectiveLoss loss(const ViewBatch& batch) override {
    model_->set_epoch(batch.epoch);
    const paco::PacoOutput out =
        model_->forward(batch.views[0], batch.views[1], batch.targets, batch.shown);
    ObjectiveLoss loss{.mean = out.total,
                       .logits = out.logits,
                       .features = out.features1,
                       .active_share = out.parts.active_share,
                       .terms = {}};
    const trainer::LossTerm terms[] = {{&MetricsRow::ce, out.ce},
                                       {&MetricsRow::pac, out.pac},
                                       {&MetricsRow::soc, out.soc},
                                       {&MetricsRow::active_share, out.parts.active_share},
                                       {&MetricsRow::empty_share, out.parts.empty_share}};
    for (const auto& [column, mean] : terms) {
      if (mean.defined()) loss.terms.push_back({column, mean.detach()});
    }
    return loss;
  }
  std::vector<Tensor> class_buffers() const override {
    std::vector<Tensor> buffers{model_->loss->prototype_count};
    if (model_->loss->prototype.size(0) > 0) buffers.push_back(model_->loss->prototype);
    return buffers;
  }
  Json report() const override { return model_->optimization_info(); }
  std::optional<PartSpec> parts() const override {
    return PartSpec{.stage = model_->options().stage, .sampler = model_->options().sampler};
  }

 private:
  static paco::PacoModelOptions options_of(const LossConfig& loss, const PacoConfig& paco,
                                           std::uint64_t seed, Index images) {
    paco::PacoModelOptions options = model_options(paco, loss);
    options.seed = seed;
    options.images = images;
    return options;
  }

  paco::PacoModel model_;
};

}  // namespace

std::unique_ptr<Objective> make_distillation(nn::VisionNet net,
                                             std::shared_ptr<const VisionTeacher> teacher,
                                             const LossConfig& loss,
                                             loss::DistillationOptions options) {
  options.label_smoothing = loss.label_smoothing;
  return std::make_unique<DistillationObjective>(std::move(net), std::move(teacher), loss.views,
                                                 options);
}

std::unique_ptr<Objective> make_objective(const LossConfig& loss, const PacoConfig& paco,
                                          nn::VisionNet net, std::uint64_t seed, Index images) {
  if (loss.method == "paco") return std::make_unique<PartObjective>(loss, paco, net, seed, images);
  return std::make_unique<FeatureObjective>(loss, std::move(net), seed);
}

}  // namespace hone::task
