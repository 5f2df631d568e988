// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/objective.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/train/loss/supcon.h"
#include "hone/train/loss/triplet.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/paco/model.h"
#include "hone/train/task/vision/vision_config.h"
#include "tests/support/error_of.h"

namespace hone::task {
namespace {

using hone::test::error_of;
using testing::HasSubstr;
using torch::Tensor;

nn::VisionNet small_net(const char* name = "resnet20") {
  return nn::make_vision_net(
      {.name = name, .width = 8, .channels = 3, .height = 16, .image_width = 16, .classes = 3}, 1);
}

ViewBatch two_views() {
  at::manual_seed(4);
  return {.views = {at::randn({6, 3, 16, 16}), at::randn({6, 3, 16, 16})},
          .targets = at::arange(6, at::kLong).remainder(3)};
}

double term(const ObjectiveLoss& loss, std::optional<double> trainer::MetricsRow::*column) {
  for (const auto& [own, mean] : loss.terms) {
    if (own == column) return mean.item<double>();
  }
  return -1;
}

// The network's outputs for both views as one batch, in training as the objectives see them.
struct Outputs {
  Tensor features, logits, targets;
};
Outputs outputs_of(const ViewBatch& batch) {
  const auto net = std::dynamic_pointer_cast<nn::ResNetImpl>(small_net().ptr());
  const Tensor features = net->forward_features(at::cat(batch.views)).mean({2, 3});
  return {features, net->classify(features), batch.targets.repeat({2})};
}

TEST(Objective, of_cross_entropy_is_its_mean_over_all_views) {
  const ViewBatch batch = two_views();
  const Outputs out = outputs_of(batch);
  for (const double smoothing : {0.0, 0.2}) {
    const auto objective =
        make_objective({.views = 2, .label_smoothing = smoothing}, {}, small_net(), 1);
    EXPECT_EQ(objective->views(), 2);
    const ObjectiveLoss loss = objective->loss(batch);
    const Tensor logs = out.logits.to(at::kDouble).log_softmax(1);
    const Tensor chosen = logs.gather(1, out.targets.unsqueeze(1)).mean();
    const Tensor want = (1 - smoothing) * -chosen + smoothing * -logs.mean();
    EXPECT_NEAR(loss.mean.item<double>(), want.item<double>(), 1e-5);
    EXPECT_EQ(loss.logits.size(0), 6);
    EXPECT_TRUE(loss.features.equal(out.features.narrow(0, 0, 6)));
  }
}

TEST(Objective, of_supcon_and_triplet_is_the_weighted_sum) {
  const ViewBatch batch = two_views();
  const Outputs out = outputs_of(batch);
  const double ce = at::cross_entropy_loss(out.logits, out.targets).item<double>();
  LossConfig config{.method = "triplet", .views = 2, .aux_weight = 0.5, .margin = 0.3};
  const ObjectiveLoss triplet = make_objective(config, {}, small_net(), 1)->loss(batch);
  const auto expected = loss::batch_hard_triplet(out.features, out.targets, {.margin = 0.3});
  EXPECT_NEAR(triplet.mean.item<double>(), ce + 0.5 * expected.loss.item<double>(), 1e-5);
  EXPECT_NEAR(term(triplet, &trainer::MetricsRow::aux), expected.loss.item<double>(), 1e-5);
  EXPECT_EQ(term(triplet, &trainer::MetricsRow::active_share),
            expected.active_share.item<double>());

  config.method = "supcon";
  config.temperature = 0.2;
  const auto objective = make_objective(config, {}, small_net(), 1);
  const ObjectiveLoss supcon = objective->loss(batch);
  const Tensor projection = objective->module().named_parameters()["projection.weight"];
  const Tensor contrast = loss::supervised_contrastive(at::linear(out.features, projection),
                                                       out.targets, {.temperature = 0.2});
  EXPECT_NEAR(supcon.mean.item<double>(), ce + 0.5 * contrast.item<double>(), 1e-5);
  EXPECT_NEAR(term(supcon, &trainer::MetricsRow::ce), ce, 1e-5);
}

TEST(Objective, gives_every_parameter_a_gradient) {
  for (const char* method : {"ce", "supcon", "triplet", "paco"}) {
    const auto objective =
        make_objective({.method = method, .views = 2}, {.dim = 8}, small_net(), 1);
    objective->loss(two_views()).mean.backward();
    for (const auto& item : objective->module().named_parameters()) {
      EXPECT_TRUE(item.value().grad().defined()) << method << ' ' << item.key();
    }
  }
}

TEST(Objective, of_part_contrast_trains_the_network_that_it_is_given) {
  const nn::VisionNet net = small_net();
  const auto objective = make_objective({.method = "paco"}, {.dim = 8}, net, 1);
  const ObjectiveLoss loss = objective->loss(two_views());
  EXPECT_NEAR(loss.mean.item<double>(),
              term(loss, &trainer::MetricsRow::ce) + term(loss, &trainer::MetricsRow::pac) +
                  0.1 * term(loss, &trainer::MetricsRow::soc),
              1e-5);
  loss.mean.backward();
  for (const auto& item : net->named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
  }
  const Json report = objective->report();
  EXPECT_EQ(report.at("num_parts"), 4);
  EXPECT_EQ(report.at("class_prototypes_initialized"), 3);
  EXPECT_EQ(report.at("last_step").at("saved").at("factorized_side"), 6);
  EXPECT_FALSE(report.at("using_mahalanobis"));
}

TEST(Objective, of_part_contrast_has_the_terms_that_it_computes) {
  using Row = trainer::MetricsRow;
  for (const auto& [pac, soc] : {std::pair{0.0, 0.1}, {1.0, 0.0}}) {
    const auto objective = make_objective(
        {.method = "paco"}, {.dim = 8, .lambda_pac = pac, .eta_soc = soc}, small_net(), 1);
    const ObjectiveLoss loss = objective->loss(two_views());
    EXPECT_EQ(term(loss, &Row::pac) >= 0, pac > 0);
    EXPECT_EQ(term(loss, &Row::active_share) >= 0, pac > 0);
    EXPECT_EQ(term(loss, &Row::empty_share) >= 0, pac > 0);
    EXPECT_EQ(term(loss, &Row::soc) >= 0, soc > 0);
    EXPECT_GT(term(loss, &Row::ce), 0);
    EXPECT_EQ(loss.active_share.defined(), pac > 0) << "what the guard watches";
    for (const auto& [column, mean] : loss.terms) EXPECT_TRUE(mean.defined());
  }
}

TEST(Objective, refuses_networks_without_a_map) {
  for (const char* method : {"supcon", "triplet", "paco"}) {
    EXPECT_THAT(error_of([&] { make_objective({.method = method}, {}, small_net("cnn"), 1); }),
                HasSubstr(concat("a ResNet for loss.method = ", method, ", got cnn")));
  }
}

// The last map of 8 x 8 images has 2 x 2 cells, the one before 4 x 4.
TEST(Objective, names_the_keys_where_a_map_has_fewer_cells_than_parts) {
  const auto message = [](Index parts, const char* stage) {
    const nn::VisionNet net = nn::make_vision_net(
        {.name = "resnet20", .width = 8, .channels = 3, .height = 8, .image_width = 8}, 1);
    PacoConfig paco;
    paco.parts = parts;
    paco.dim = 8;
    paco.caps = false;
    paco.stage = stage;
    return error_of([&] { make_objective({.method = "paco"}, paco, net, 1); });
  };
  EXPECT_EQ(message(4, "last"), "no error");
  const std::string refused = message(5, "last");
  EXPECT_THAT(refused, HasSubstr("[paco.parts] expected at most the 2 x 2 cells"));
  EXPECT_THAT(refused, HasSubstr("paco.stage = last"));
  EXPECT_THAT(refused, HasSubstr("data.image_size"));
  EXPECT_EQ(message(5, "penultimate"), "no error");
}

VisionConfig with_preset(const char* preset, std::initializer_list<const char*> settings = {}) {
  VisionConfig config = part_contrast_config();
  set_config(config, concat("paco.preset=", preset));
  for (const char* setting : settings) set_config(config, setting);
  return apply_preset(config);
}

TEST(PacoPreset, exact_is_what_the_keys_are_by_default) {
  const VisionConfig exact = with_preset("exact");
  EXPECT_EQ(exact.paco.preset, "none");
  VisionConfig plain = part_contrast_config();
  plain.paco.preset = "none";
  EXPECT_EQ(to_toml(exact), to_toml(plain));
}

TEST(PacoPreset, compat_is_the_published_method) {
  const VisionConfig config = with_preset("compat");
  const paco::PacoModelOptions options = model_options(config.paco, config.loss);
  EXPECT_EQ(options.ce.weight, paco::CeWeight::Attached);
  EXPECT_EQ(options.ce.label_smoothing, 0);
  EXPECT_EQ(options.loss.pool, paco::NegativePool::OneImage);
  EXPECT_FALSE(options.loss.mask_owner || options.loss.mask_class);
  EXPECT_EQ(options.loss.screen_top_m, 32);
  EXPECT_EQ(options.loss.metric.delta, paco::DeltaMode::Absolute);
  EXPECT_EQ(options.loss.metric.floor, 1.11e-3);
  EXPECT_EQ(options.loss.match_floor, 1.01e-3);
  EXPECT_EQ(options.loss.distance_scale, paco::DistanceScale::None);
  EXPECT_EQ(options.loss.prototype_init, paco::PrototypeInit::Identity);
  EXPECT_EQ(options.loss.soc_scale, paco::SocScale::None);
  EXPECT_EQ(options.ce_views, paco::CeViews::Mean);
  EXPECT_EQ(options.sampler.suppression, paco::Suppression::Fraction);
  EXPECT_EQ(options.sampler.fraction, 0.1);
  EXPECT_TRUE(options.sampler.allow_repeats);
  EXPECT_EQ(config.trainer.clip_norm, 0);
  EXPECT_EQ(config.lr.warm_up_steps, 0);
}

TEST(PacoPreset, robust_shares_a_metric) {
  const VisionConfig config = with_preset("robust");
  const paco::PacoModelOptions options = model_options(config.paco, config.loss);
  EXPECT_EQ(options.ce.weight, paco::CeWeight::Off);
  EXPECT_EQ(options.loss.metric.pooled, 0.5);
  EXPECT_EQ(options.loss.hinge, paco::Hinge::Softplus);
  EXPECT_TRUE(options.loss.mask_owner && options.loss.mask_class);
}

TEST(PacoPreset, leaves_keys_that_are_given) {
  const VisionConfig config = with_preset(
      "compat", {"paco.mask_owner=true", "trainer.clip_norm=3", "paco.prototype_init=skip"});
  EXPECT_TRUE(config.paco.mask_owner);
  EXPECT_FALSE(config.paco.mask_class);
  EXPECT_EQ(config.trainer.clip_norm, 3);
  EXPECT_EQ(config.paco.prototype_init, "skip");
}

TEST(PacoConfig, refuses_values_by_key) {
  for (const auto& [setting, expected] :
       {std::pair{"paco.mining=all", "[paco.mining] expected semi_hard or hardest, got all"},
        {"paco.preset=best", "[paco.preset] expected exact, compat, robust or none, got best"},
        {"paco.parts=9", "[paco.parts]"},
        {"paco.gamma=1.5", "[paco.gamma]"},
        {"paco.delta_floor=0", "[paco.delta_floor]"},
        {"loss.method=arcface", "[loss.method] expected ce, supcon, triplet or paco"},
        {"loss.temperature=0", "[loss.temperature]"},
        {"loss.on_collapse=cry", "[loss.on_collapse] expected off, warn or stop"},
        {"loss.margin=0.1", "no effect with loss.method = paco"},
        {"loss.views=1", "loss.method = paco, which takes 2"},
        {"model.name=cnn", "[model.name] expected a ResNet for loss.method = paco, got cnn"},
        {"paco.suppression_fraction=0.2", "no effect with paco.suppression = window"}}) {
    VisionConfig config = part_contrast_config();
    config.data.path = "leaves";
    EXPECT_THAT(error_of([&, setting = setting] {
                  set_config(config, setting);
                  check_config(config);
                }),
                HasSubstr(expected))
        << setting;
  }
  const auto together = [](std::initializer_list<const char*> settings) {
    VisionConfig config = part_contrast_config();
    config.data.path = "leaves";
    for (const char* setting : settings) set_config(config, setting);
    return error_of([&] { check_config(config); });
  };
  EXPECT_THAT(together({"paco.lambda_pac=0", "paco.alpha=3"}),
              HasSubstr("[paco.alpha] This key has no effect with paco.lambda_pac = 0"));
  EXPECT_THAT(together({"paco.eta_soc=0", "paco.beta=3"}),
              HasSubstr("[paco.beta] This key has no effect with paco.eta_soc = 0"));
  EXPECT_EQ(together({"paco.lambda_pac=0", "paco.eta_soc=0", "paco.gamma=0.5"}), "no error");
  EXPECT_THAT(together({"paco.parts=1", "paco.pooled=0.5"}),
              HasSubstr("[paco.pooled] expected 0 for paco.parts = 1, got 0.5"));
  EXPECT_THAT(together({"paco.parts=8", "paco.caps=false", "paco.solver=table"}),
              HasSubstr("[paco.parts] expected at most 7 for paco.solver = table, got 8"));
  EXPECT_EQ(together({"paco.parts=7", "paco.caps=false", "paco.solver=table"}), "no error");
  EXPECT_EQ(together({"paco.parts=8", "paco.solver=table"}), "no error") << "capped to 4";
  VisionConfig plain;
  plain.data.path = "leaves";
  set_config(plain, "paco.alpha=0.3");
  EXPECT_THAT(error_of([&] { check_config(plain); }), HasSubstr("no effect with loss.method = ce"));
}

}  // namespace
}  // namespace hone::task
