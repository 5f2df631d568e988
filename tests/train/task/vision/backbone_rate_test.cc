// SPDX-License-Identifier: Apache-2.0
// lr.backbone_scale in the groups and the steps of an optimizer.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/train/optim/adam.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/task/vision/vision_setup.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

using test::error_of;
using testing::HasSubstr;
using torch::Tensor;
using State = std::map<std::string, Tensor>;

State state_of(const VisionSetup& setup) {
  State out;
  for (const trainer::CheckpointTensor& weight : setup.task->weights()) {
    out[weight.name] = weight.value.detach().clone();
  }
  return out;
}

bool is_new(const std::string& name) {
  return name.find("linear.") != std::string::npos || name.starts_with("projection.");
}

// The state after some steps at the rates that the optimizer has when it is made.
State train_backbone(const VisionConfig& config, Index steps) {
  const VisionSetup setup = set_up_vision(config);
  const auto optimizer = make_optimizer(config, setup);
  for (Index step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const trainer::LossSum loss = setup.task->micro_batch(step, 0);
    (loss.sum / loss.weight).backward();
    optimizer->step_with({});
  }
  return state_of(setup);
}

class BackboneRate : public testing::Test {
 protected:
  BackboneRate() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(folder_.path(), 12, 4, 80, 20);
    write_init(7);
  }
  // Weights of a model for so many classes.
  void write_init(Index classes) const {
    const nn::VisionNet net = nn::make_vision_net({.name = "resnet20",
                                                   .width = 8,
                                                   .channels = 1,
                                                   .height = 12,
                                                   .image_width = 12,
                                                   .classes = classes},
                                                  7);
    std::vector<NamedTensor> tensors = nn::parameters_by_path(*net);
    std::ranges::copy(nn::buffers_by_path(*net), std::back_inserter(tensors));
    write_tensors(init(), tensors);
  }
  std::filesystem::path init() const { return folder_.path() / "init.safetensors"; }
  VisionConfig with(const std::vector<std::string>& settings) const {
    VisionConfig config;
    config.data.path = folder_.path().string();
    config.model.name = "resnet20";
    config.model.width = 8;
    config.model.init = init().string();
    config.trainer.micro_batch = 16;
    config.loss.on_collapse = "off";
    for (const std::string& setting : settings) set_config(config, setting);
    check_config(config);
    return config;
  }

  test::TemporaryFolder folder_;
};

TEST_F(BackboneRate, splits_the_groups_by_where_the_weights_come_from) {
  for (const char* method : {"ce", "supcon", "paco"}) {
    // A tenth of this rate is that of options in which none was set.
    const VisionConfig config = with({concat("loss.method=", method), "optim.name=adamw",
                                      "lr.peak=0.01", "lr.backbone_scale=0.1"});
    const VisionSetup setup = set_up_vision(config);
    const auto optimizer = make_optimizer(config, setup);
    std::map<const void*, const optim::AdamWOptions*> options;
    for (const auto& group : optimizer->param_groups()) {
      for (const Tensor& parameter : group.params()) {
        const auto& own = static_cast<const optim::AdamWOptions&>(group.options());
        EXPECT_TRUE(options.emplace(parameter.unsafeGetTensorImpl(), &own).second);
      }
    }
    const auto parameters = setup.task->objective().module().named_parameters();
    ASSERT_EQ(options.size(), parameters.size());
    Index new_ones = 0;
    for (const auto& item : parameters) {
      const optim::AdamWOptions& own = *options.at(item.value().unsafeGetTensorImpl());
      EXPECT_EQ(own.lr(), is_new(item.key()) ? 0.01 : 0.1 * 0.01) << item.key();
      EXPECT_EQ(own.weight_decay() > 0, item.value().dim() >= 2) << item.key();
      if (is_new(item.key())) ++new_ones;
    }
    EXPECT_EQ(new_ones, std::string(method) == "ce" ? 2 : 3) << "classifier and projection";
    EXPECT_EQ(optimizer->param_groups().front().options().get_lr(), 0.01);
  }
}

TEST_F(BackboneRate, the_first_group_has_the_whole_rate_also_when_all_weights_were_loaded) {
  write_init(4);
  const VisionConfig config = with({"lr.peak=0.01", "lr.backbone_scale=0.1"});
  const VisionSetup setup = set_up_vision(config);
  const auto optimizer = make_optimizer(config, setup);
  EXPECT_EQ(optimizer->param_groups().front().options().get_lr(), 0.01);
  for (const auto& group : optimizer->param_groups()) {
    EXPECT_EQ(group.options().get_lr(), group.params().empty() ? 0.01 : 0.1 * 0.01);
  }
  const State before = state_of(setup), after = train_backbone(config, 1);
  for (const auto& [name, value] : nn::parameters_by_path(*setup.model)) {
    EXPECT_FALSE(after.at(name).equal(before.at(name))) << name;
  }
}

TEST_F(BackboneRate, a_factor_of_one_is_a_run_without_the_key) {
  const VisionConfig config = with({"lr.backbone_scale=1"});
  const VisionSetup setup = set_up_vision(config);
  EXPECT_EQ(make_optimizer(config, setup)->param_groups().size(), 2u);
  const State one = train_backbone(config, 3), without = train_backbone(with({}), 3);
  const State half = train_backbone(with({"lr.backbone_scale=0.5"}), 3);
  for (const auto& [name, value] : without) EXPECT_TRUE(one.at(name).equal(value)) << name;
  EXPECT_FALSE(half.at("conv1.weight").equal(without.at("conv1.weight")));
}

TEST_F(BackboneRate, a_factor_of_zero_keeps_what_was_loaded_and_moves_the_rest) {
  for (const optim::RuleDefaults& rule : vision_rules()) {
    const VisionConfig config =
        with({concat("optim.name=", rule.name), "optim.weight_decay=0.1", "lr.backbone_scale=0"});
    const VisionSetup setup = set_up_vision(config);
    const State before = state_of(setup), after = train_backbone(config, 2);
    for (const auto& [name, value] : nn::parameters_by_path(*setup.model)) {
      const bool stays = after.at(name).equal(before.at(name));
      EXPECT_EQ(stays, !is_new(name)) << rule.name << ' ' << name;
    }
    EXPECT_FALSE(after.at("bn1.running_mean").equal(before.at("bn1.running_mean")));
  }
}

TEST_F(BackboneRate, a_tenth_of_the_rate_is_a_tenth_of_the_step_of_plain_descent) {
  const std::vector<std::string> plain = {"optim.name=sgd", "optim.momentum=0",
                                          "optim.weight_decay=0"};
  std::vector<std::string> tenth = plain;
  tenth.push_back("lr.backbone_scale=0.1");
  const VisionSetup setup = set_up_vision(with(plain));
  const State before = state_of(setup), whole = train_backbone(with(plain), 1),
              part = train_backbone(with(tenth), 1);
  double farthest = 0;
  for (const NamedTensor& parameter : nn::parameters_by_path(*setup.model)) {
    const std::string& name = parameter.name;
    const auto step_of = [&](const State& after) {
      return after.at(name).to(at::kDouble) - before.at(name).to(at::kDouble);
    };
    const auto largest = [](const Tensor& values) { return values.abs().max().item<double>(); };
    const Tensor step = step_of(whole);
    // Both results are rounded to fp32.
    const double limit =
        std::numeric_limits<float>::epsilon() * (largest(before.at(name)) + largest(step));
    EXPECT_LE(largest(step_of(part) - (is_new(name) ? 1.0 : 0.1) * step), limit) << name;
    if (!is_new(name)) farthest = std::max(farthest, largest(step) / limit);
  }
  EXPECT_GT(farthest, 1000) << "steps that rounding does not hide";
}

TEST_F(BackboneRate, is_refused_where_no_weights_are_loaded_or_it_is_no_factor) {
  VisionConfig config;
  config.data.path = "x";
  set_config(config, "lr.backbone_scale=0.1");
  EXPECT_THAT(error_of([&] { check_config(config); }),
              HasSubstr("[lr.backbone_scale] This key has no effect with an empty model.init"));
  config.model.init = "y";
  EXPECT_EQ(error_of([&] { check_config(config); }), "no error");
  for (const double bad : {-0.1, 1001.0, std::numeric_limits<double>::quiet_NaN()}) {
    config.backbone_scale = bad;
    EXPECT_THAT(error_of([&] { check_config(config); }), HasSubstr("lr.backbone_scale")) << bad;
  }
}

}  // namespace
}  // namespace hone::task
