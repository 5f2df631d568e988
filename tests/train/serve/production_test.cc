// SPDX-License-Identifier: Apache-2.0
// What each stage of optimize_for_production() does to a model, with scripted times.
#include "hone/train/serve/production.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <string>
#include <vector>

#include "hone/measure/measure.h"
#include "hone/train/compress/quantizable.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/nn/vision.h"
#include "hone/train/relative_error.h"
#include "tests/support/error_of.h"
#include "tests/train/scripted_measurer.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::ScriptedMeasurer;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::Sequential;

// A changed form takes this many seconds, and the form before it takes one.
ScriptedMeasurer changed_takes(double seconds) {
  ScriptedMeasurer measurer;
  for (const char* name : {"fused", "packed", "after", "dense", "f32"}) {
    measurer.seconds[name] = seconds;
  }
  return measurer;
}

VisionNet make_resnet() {
  VisionNet net = make_vision_net({.name = "resnet20",
                                   .width = 16,
                                   .channels = 3,
                                   .height = 16,
                                   .image_width = 16,
                                   .classes = 5},
                                  /*seed=*/2);
  net->eval();
  return net;
}

Tensor images() { return at::linspace(-1, 1, 4 * 3 * 16 * 16).sin().reshape({4, 3, 16, 16}); }

const ProductionStage& stage_of(const ProductionReport& report, const std::string& name) {
  for (const ProductionStage& stage : report.stages) {
    if (stage.name == name) return stage;
  }
  throw std::runtime_error("no stage " + name);
}

Tensor outputs(VisionNet& net) {
  const at::NoGradGuard no_grad;
  return net->forward(images());
}

TEST(Production, folds_and_quantizes_a_resnet_whose_forms_are_faster) {
  VisionNet net = make_resnet();
  const Tensor want = outputs(net);
  ScriptedMeasurer measurer = changed_takes(0.5);
  const ProductionReport report =
      optimize_for_production(net, images(), measurer, {.tries_script = false});
  ASSERT_EQ(report.stages.size(), 4U);
  EXPECT_EQ(stage_of(report, "fold").status, CompressionStatus::Applied);
  EXPECT_EQ(stage_of(report, "fold").layers, 19);
  EXPECT_LT(stage_of(report, "fold").error, 1e-5);
  EXPECT_EQ(stage_of(report, "fuse").status, CompressionStatus::Skipped);
  EXPECT_EQ(stage_of(report, "freeze").status, CompressionStatus::Skipped);
  const ProductionStage& quantized = stage_of(report, "quantize");
  EXPECT_EQ(quantized.status, CompressionStatus::Applied) << quantized.reason;
  EXPECT_EQ(quantized.layers, 20);
  EXPECT_LT(quantized.bytes_after, quantized.bytes_before / 3);
  EXPECT_LT(report.error, 0.02);
  EXPECT_NEAR(report.error, relative_error(outputs(net), want), 1e-12);
  EXPECT_NEAR(report.speedup.ratio, 2, 1e-9);
  EXPECT_EQ(quantized_layers(*net.ptr()).size(), 20U);
}

TEST(Production, exact_keeps_the_outputs) {
  VisionNet net = make_resnet();
  const Tensor want = outputs(net);
  ScriptedMeasurer measurer = changed_takes(0.5);
  const ProductionReport report = optimize_for_production(
      net, images(), measurer, {.level = FreezeLevel::Exact, .tries_script = false});
  EXPECT_EQ(stage_of(report, "quantize").status, CompressionStatus::Skipped);
  EXPECT_LT(relative_error(outputs(net), want), 1e-5);
  EXPECT_EQ(report.bytes_after, report.bytes_before);
}

TEST(Production, changes_nothing_where_nothing_is_faster) {
  VisionNet net = make_resnet();
  const Tensor want = outputs(net);
  ScriptedMeasurer measurer = changed_takes(2);
  const ProductionReport report =
      optimize_for_production(net, images(), measurer, {.tries_script = false});
  EXPECT_EQ(stage_of(report, "fold").status, CompressionStatus::Failed);
  EXPECT_EQ(stage_of(report, "quantize").status, CompressionStatus::Failed);
  EXPECT_THAT(stage_of(report, "quantize").reason, HasSubstr("slower"));
  EXPECT_TRUE(outputs(net).equal(want));
  EXPECT_TRUE(quantized_layers(*net.ptr()).empty());
  EXPECT_EQ(report.bytes_after, report.bytes_before);
  EXPECT_THAT(report.verdict, HasSubstr("Nothing"));
}

TEST(Production, undoes_a_stage_whose_error_is_above_the_limit) {
  VisionNet net = make_resnet();
  const Tensor want = outputs(net);
  ScriptedMeasurer measurer = changed_takes(0.5);
  const ProductionReport report =
      optimize_for_production(net, images(), measurer, {.max_error = 1e-4, .tries_script = false});
  EXPECT_EQ(stage_of(report, "fold").status, CompressionStatus::Applied);
  EXPECT_EQ(stage_of(report, "quantize").status, CompressionStatus::Failed);
  EXPECT_THAT(stage_of(report, "quantize").reason, HasSubstr("limit"));
  EXPECT_LT(relative_error(outputs(net), want), 1e-5);
}

TEST(Production, fuses_a_sequential_and_uses_gptq_with_calibration) {
  torch::manual_seed(1);
  Sequential net(torch::nn::Linear(64, 96), torch::nn::ReLU(), torch::nn::Linear(96, 8));
  net->eval();
  const Tensor x = at::randn({32, 64});
  ScriptedMeasurer measurer = changed_takes(0.5);
  const ProductionReport report = optimize_for_production(net, x, measurer,
                                                          {.level = FreezeLevel::Aggressive,
                                                           .calibration = {x},
                                                           .max_error = 0.5,
                                                           .tries_script = false});
  EXPECT_EQ(stage_of(report, "fuse").status, CompressionStatus::Applied);
  EXPECT_EQ(stage_of(report, "fold").status, CompressionStatus::Skipped);
  EXPECT_EQ(stage_of(report, "quantize").status, CompressionStatus::Applied);
  EXPECT_EQ(report.quantization->layers.back().algorithm, "gptq");
}

TEST(Production, freezes_factored_layers) {
  torch::manual_seed(1);
  FactoredLinearOptions options;
  options.in_features = 48;
  options.out_features = 40;
  options.rank = 8;
  const FactoredLinear layer(options);
  Sequential net(layer, torch::nn::Tanh());
  net->eval();
  ScriptedMeasurer measurer = changed_takes(0.5);
  const ProductionReport report = optimize_for_production(
      net, at::randn({16, 48}), measurer, {.level = FreezeLevel::Exact, .tries_script = false});
  EXPECT_EQ(stage_of(report, "freeze").status, CompressionStatus::Applied)
      << stage_of(report, "freeze").reason;
  EXPECT_LT(report.error, 1e-4);
}

TEST(Production, times_real_forms_and_says_what_it_did) {
  VisionNet net = make_resnet();
  const auto measurer = measure::make_measurer();
  const ProductionReport report = optimize_for_production(
      net, images(), *measurer, {.measure = {.min_samples = 3, .max_seconds = 0.05}});
  const Json json = to_json(report);
  EXPECT_EQ(json["stages"].size(), 4U);
  for (const Json& stage : json["stages"]) EXPECT_FALSE(stage["reason"].empty());
  ASSERT_FALSE(json["torchscript"].is_null());
  EXPECT_EQ(json["torchscript"]["forms"][0]["form"], "traced");
  EXPECT_FALSE(report.verdict.empty());
}

TEST(Production, refuses_what_it_cannot_prepare) {
  VisionNet net = make_resnet();
  ScriptedMeasurer measurer = changed_takes(0.5);
  const auto message = [&](const Tensor& example, const ProductionOptions& options = {}) {
    return refusal([&] { optimize_for_production(net, example, measurer, options); });
  };
  EXPECT_THAT(message({}), HasSubstr("example"));
  EXPECT_THAT(message(images(), {.max_error = -1}), HasSubstr("max_error"));
  net->train();
  EXPECT_THAT(message(images()), HasSubstr("training mode"));
  EXPECT_EQ(find_level("exact"), FreezeLevel::Exact);
  EXPECT_FALSE(find_level("O3"));
}

}  // namespace
}  // namespace hone::nn
