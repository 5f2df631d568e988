// SPDX-License-Identifier: Apache-2.0
// The default rate, decays, warm-up and clipping of every rule on what a classifier of photographs
// starts from: many features that are never negative, and classes that they hardly tell apart.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/task/vision/vision_config.h"
#include "hone/train/trainer/make_optimizer.h"
#include "hone/train/trainer/schedule.h"

namespace hone::task {
namespace {

// As many features as the cnn has for images of 64 x 64, and 17 classes.
constexpr Index kWideFeatures = 8192, kFlowers = 17, kPhotos = 64, kFirstSteps = 50;

struct Batch {
  torch::Tensor features, labels;
};

// Always other samples, so that nothing can be learned by heart.
Batch next_batch(const torch::Tensor& centers) {
  const torch::Tensor labels = torch::randint(kFlowers, {kPhotos}, torch::kLong);
  const torch::Tensor noise = torch::randn({kPhotos, kWideFeatures});
  return {(0.03 * centers.index_select(0, labels) + noise).relu(), labels};
}

// The losses of the first steps with the defaults of these settings.
std::vector<double> first_losses(const std::vector<std::string>& settings) {
  VisionConfig config;
  for (const std::string& one : settings) set_config(config, one);
  torch::manual_seed(7);
  torch::nn::Linear head(kWideFeatures, kFlowers);
  const torch::Tensor centers = torch::randn({kFlowers, kWideFeatures});
  config.optim = trainer::apply_preset(config.optim, config.given, *head);
  const auto optimizer = trainer::make_optimizer(optim::fill_defaults(config.optim, vision_rules()),
                                                 peak_of(config), *head);
  const auto schedule = trainer::make_schedule(config.lr, config.trainer.steps, *optimizer);
  std::vector<double> losses;
  for (Index step = 0; step < kFirstSteps; ++step) {
    const Batch batch = next_batch(centers);
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(head->forward(batch.features), batch.labels);
    losses.push_back(loss.item<double>());
    loss.backward();
    optimizer->step_with(
        {.clip_norm = config.trainer.clip_norm, .grad = optim::GradWriteBack::Zero});
    schedule->step();
  }
  return losses;
}

class DefaultRates : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(DefaultRates, do_not_raise_the_first_losses_by_half) {
  const std::vector<double> losses = first_losses(GetParam());
  EXPECT_LT(std::ranges::max(losses), 1.5 * losses.front());
}

std::vector<std::vector<std::string>> rules_and_presets() {
  std::vector<std::vector<std::string>> all;
  for (const optim::RuleDefaults& rule : vision_rules()) {
    all.push_back({concat("optim.name=", rule.name)});
  }
  for (const char* preset :
       {"high_performance", "stable", "large_model", "memory_limited", "for_model_size"}) {
    all.push_back({"optim.name=tam", concat("optim.preset=", preset)});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Vision, DefaultRates, testing::ValuesIn(rules_and_presets()),
                         [](const auto& instance) {
                           const std::string& last = instance.param.back();
                           return last.substr(last.find('=') + 1);
                         });

}  // namespace
}  // namespace hone::task
