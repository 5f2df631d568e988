// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/factored_layers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/core/log.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/sketch/frozen_linear.h"
#include "hone/train/sketch/sketched_conv.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/layer_tree.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/task/vision/vision_setup.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;

using nn::FactorMode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using torch::Tensor;

VisionModel model_of(const char* name, Index classes = 4) {
  std::vector<std::string> names;
  for (Index i = 0; i < classes; ++i) names.push_back(std::to_string(i));
  return {.net = nn::make_vision_net({.name = name,
                                      .width = 16,
                                      .layers = 1,
                                      .channels = 1,
                                      .height = 12,
                                      .image_width = 12,
                                      .classes = classes},
                                     /*seed=*/1),
          .classes = names,
          .stats = {{0.25}, {0.5}}};
}

// The layer as a factored one of its weight.
void factor(nn::VisionNet& net, const FactoredLayer& as) {
  const nn::Layer layer = nn::find_layer(*net, as.name);
  const bool is_sketched = as.mode == FactoredLayer::Mode::Sketched;
  const FactorMode mode = is_sketched ? FactorMode::Sketched : FactorMode::LowRank;
  const nn::Fit fit = is_sketched ? nn::Fit::Projection : nn::Fit::Svd;
  if (auto* conv = layer.module->as<torch::nn::Conv2d>()) {
    const nn::ConvFitOptions options{
        .mode = mode, .fit = fit, .rank = as.rank, .terms = as.terms, .seed = as.seed};
    nn::replace(*net, as.name, torch::nn::AnyModule(nn::from_conv(*conv, options)));
    return;
  }
  nn::FitOptions options;
  options.mode = mode;
  options.fit = fit;
  options.rank = as.rank;
  options.terms = as.terms;
  options.seed = as.seed;
  auto& linear = dynamic_cast<torch::nn::LinearImpl&>(*layer.module);
  nn::replace(*net, as.name, torch::nn::AnyModule(nn::from_linear(linear, options)));
}

const std::vector<FactoredLayer>& layers_to_factor(const std::string& model) {
  const auto sketched = [](const char* path, std::uint64_t seed) {
    return FactoredLayer{path, FactoredLayer::Mode::Sketched, 8, 2, seed};
  };
  const auto low_rank = [](const char* path) {
    return FactoredLayer{path, FactoredLayer::Mode::LowRank, 3};
  };
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  static const std::map<std::string, std::vector<FactoredLayer>> layers = {
      {"mlp", {sketched("hidden0", kLargest), low_rank("linear")}},
      {"cnn", {low_rank("conv1"), sketched("linear", 5)}},
      {"resnet20", {sketched("layer1.0.conv1", 7), low_rank("layer2.0.conv2"), low_rank("linear")}},
      {"resnet18", {low_rank("layer2.0.downsample.0"), sketched("layer4.1.conv2", 0)}}};
  return layers.at(model);
}

class FactoredLayers : public testing::Test {
 protected:
  FactoredLayers() { set_log_level(LogLevel::Error); }
  // Written to folder().
  VisionModel factored_model(const char* name, Index classes = 4) const {
    VisionModel model = model_of(name, classes);
    for (const FactoredLayer& layer : layers_to_factor(name)) factor(model.net, layer);
    write_vision_model(folder(), model);
    return model;
  }
  std::string refusal() const {
    return test::refusal([&] { read_vision_model(folder()); }, ErrorCategory::CorruptFile);
  }
  // What reading says of the folder whose config.json has another value at a path.
  std::string with(const std::string& pointer, const Json& value) const {
    const fs::path path = folder() / "config.json";
    const Json before = read_json_file(path);
    Json changed = before;
    changed[Json::json_pointer("/factored_layers" + pointer)] = value;
    write_json_file(path, changed);
    const std::string message = refusal();
    write_json_file(path, before);
    return message;
  }
  std::string with_tensors(const std::function<void(std::vector<NamedTensor>&)>& change) const {
    const fs::path path = folder() / "model.safetensors";
    const std::vector<NamedTensor> before = read_tensors(MmapFile(path));
    std::vector<NamedTensor> changed = read_tensors(MmapFile(path));
    change(changed);
    write_tensors(path, changed);
    const std::string message = refusal();
    write_tensors(path, before);
    return message;
  }
  fs::path folder() const { return folder_.path() / "model"; }

  test::TemporaryFolder folder_;
};

TEST_F(FactoredLayers, come_back_with_their_bits) {
  for (const char* name : {"mlp", "cnn", "resnet20", "resnet18"}) {
    for (const bool channels_last : {false, true}) {
      VisionModel written = factored_model(name);
      written.net->forward(at::randn({8, 1, 12, 12}));  // moves the running means
      if (channels_last) nn::use_channels_last(*written.net);
      write_vision_model(folder(), written);
      VisionModel read = read_vision_model(folder());
      EXPECT_EQ(factored_layers_of(*read.net), layers_to_factor(name)) << name;
      if (channels_last) nn::use_channels_last(*read.net);
      written.net->eval();
      read.net->eval();
      const Tensor images = at::randn({5, 1, 12, 12});
      EXPECT_TRUE(read.net->forward(images).equal(written.net->forward(images))) << name;
      for (const Tensor& parameter : read.net->parameters()) EXPECT_TRUE(parameter.requires_grad());
    }
  }
}

TEST_F(FactoredLayers, are_named_by_path_with_what_their_mode_needs) {
  factored_model("resnet20");
  const Json config = read_json_file(folder() / "config.json");
  const Json expected = {
      {"layer1.0.conv1", {{"mode", "sketched"}, {"rank", 8}, {"terms", 2}, {"seed", 7}}},
      {"layer2.0.conv2", {{"mode", "low_rank"}, {"rank", 3}}},
      {"linear", {{"mode", "low_rank"}, {"rank", 3}}}};
  EXPECT_EQ(config.at("factored_layers"), expected);
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const NamedTensor& tensor : read_tensors(MmapFile(folder() / "model.safetensors"))) {
    shapes[tensor.name] = tensor.value.sizes().vec();
  }
  EXPECT_THAT(shapes["layer1.0.conv1.s"], ElementsAre(8, 16, 3, 3));
  EXPECT_THAT(shapes["layer2.0.conv2.a"], ElementsAre(3, 32, 3, 3));
  EXPECT_THAT(shapes["layer2.0.conv2.b"], ElementsAre(32, 3, 1, 1));
  EXPECT_THAT(shapes["linear.a"], ElementsAre(3, 64));
  EXPECT_THAT(shapes["linear.b"], ElementsAre(3, 4));
  EXPECT_THAT(shapes["linear.bias"], ElementsAre(4));
  for (const char* gone : {"layer1.0.conv1.weight", "layer1.0.conv1.sketch", "linear.weight"}) {
    EXPECT_FALSE(shapes.contains(gone)) << gone;
  }
}

TEST_F(FactoredLayers, of_a_dense_model_are_not_mentioned) {
  write_vision_model(folder(), model_of("cnn"));
  EXPECT_FALSE(read_json_file(folder() / "config.json").contains("factored_layers"));
  EXPECT_THAT(factored_layers_of(*read_vision_model(folder()).net), IsEmpty());
}

TEST_F(FactoredLayers, are_refused_where_they_do_not_fit) {
  factored_model("resnet20");
  EXPECT_THAT(with("", Json::array()), HasSubstr("a JSON object for factored_layers, got array"));
  EXPECT_THAT(with("/linear", 3),
              AllOf(HasSubstr((folder() / "config.json").string()),
                    HasSubstr("factored_layers: 'linear'] expected a JSON obj")));
  const Json low_rank = {{"mode", "low_rank"}, {"rank", 3}};
  for (const char* path : {"fc", "layer1", "layer1.0.bn1", "linear.layer", "", "\x1b[2J"}) {
    EXPECT_THAT(with(std::string("/") + path, low_rank),
                HasSubstr("no convolution or linear layer"))
        << path;
  }
  EXPECT_THAT(with("/linear/mode", "dense"), HasSubstr("low_rank, sketched or projected for mode"));
  EXPECT_THAT(with("/linear/mode", "projected"), HasSubstr("only in language models"));
  EXPECT_THAT(with("/linear/mode", Json()), HasSubstr("for mode, got none"));
  EXPECT_THAT(with("/linear/mode", "sketched"), HasSubstr("for seed, got none"));
  EXPECT_THAT(with("/linear/rank", Json()), HasSubstr("The key rank is missing"));
  EXPECT_THAT(with("/linear/rank", 2.5), HasSubstr("a whole number for rank"));
  EXPECT_THAT(with("/linear/rank", 0), HasSubstr("1 to 2^30 for rank, got 0"));
  EXPECT_THAT(with("/linear/rank", -3), HasSubstr("for rank, got -3"));
  EXPECT_THAT(with("/linear/rank", std::int64_t{1} << 40), HasSubstr("1 to 2^30 for rank"));
  EXPECT_THAT(with("/linear/rank", 1 << 30), HasSubstr("a rank of 1 to 256, got 1073741824"));
  EXPECT_THAT(with("/linear/rank", 257), HasSubstr("'linear'] expected a rank of 1 to 256"));
  EXPECT_THAT(with("/linear/rank", 256), HasSubstr("linear.a Float [256, 64], got  Float [3, 64]"));
  EXPECT_THAT(with("/layer1.0.conv1/rank", 6),
              HasSubstr("a multiple of 2 * terms, terms 2, got 6"));
  EXPECT_THAT(with("/layer1.0.conv1/terms", 3), HasSubstr("multiple of 2 * terms, terms 3"));
  EXPECT_EQ(with("/layer1.0.conv1/terms", Json()), "") << "one";
  EXPECT_THAT(with("/layer1.0.conv1/terms", 0), HasSubstr("for terms, got 0"));
  EXPECT_THAT(with("/layer1.0.conv1/terms", 1 << 30), HasSubstr("multiple of 2 * terms"));
  EXPECT_THAT(with("/layer1.0.conv1/seed", -1), HasSubstr("2^64 - 1 for seed, got -1"));
  EXPECT_THAT(with("/layer1.0.conv1/seed", 0.5), HasSubstr("for seed, got 0.5"));
  EXPECT_THAT(with("/layer1.0.conv1/seed", Json()), HasSubstr("for seed, got none"));
  EXPECT_THAT(with("/layer1.0.conv1/mode", "low_rank"), HasSubstr("low_rank has no key"));
  EXPECT_THAT(with("", Json::object()), HasSubstr("tensor layer1.0.conv1.weight, got none"));
  EXPECT_EQ(with("/layer1.0.conv1/seed", 8), "") << "other signs, but a model";
}

TEST_F(FactoredLayers, need_exactly_their_tensors) {
  factored_model("resnet20");
  const auto find = [](std::vector<NamedTensor>& all, const char* name) {
    return std::ranges::find(all, name, &NamedTensor::name);
  };
  for (const char* name : {"layer1.0.conv1.s", "layer2.0.conv2.b", "linear.a", "linear.bias"}) {
    EXPECT_THAT(with_tensors([&](auto& all) { all.erase(find(all, name)); }),
                AllOf(HasSubstr("model.safetensors"), HasSubstr(name), HasSubstr("got none")));
    EXPECT_THAT(with_tensors([&](auto& all) { find(all, name)->value.view(-1)[0] = NAN; }),
                HasSubstr(std::string("finite values in ") + name));
    EXPECT_THAT(with_tensors([&](auto& all) {
                  Tensor& value = find(all, name)->value;
                  value = value.to(at::kDouble);
                }),
                HasSubstr("got  Double"));
  }
  for (const char* name : {"linear.weight", "layer1.0.conv1.sketch", "linear.s1"}) {
    EXPECT_THAT(with_tensors([&](auto& all) {
                  all.push_back({name, at::zeros({2})});
                }),
                HasSubstr(std::string("got '") + name));
  }
}

// Neither a dense weight of 13 TB nor a factor of 40 TB is there before the tensor is missed.
TEST_F(FactoredLayers, take_no_memory_for_what_the_file_does_not_have) {
  factored_model("mlp");
  const fs::path path = folder() / "config.json";
  Json config = read_json_file(path);
  config["channels"] = 3;
  config["mean"] = config["std"] = {0.5, 0.5, 0.5};
  config["height"] = config["image_width"] = 4096;
  config["width"] = 65536;
  config["factored_layers"]["hidden0"] = {{"mode", "low_rank"}, {"rank", 200'000}};
  config["factored_layers"]["linear"] = {{"mode", "low_rank"}, {"rank", 1}};
  write_json_file(path, config);
  EXPECT_THAT(refusal(), HasSubstr("hidden0.a, got none"));
}

TEST_F(FactoredLayers, of_kinds_that_a_folder_cannot_name_are_not_written) {
  const auto refuses = [&](const char* path, torch::nn::AnyModule layer) {
    VisionModel model = model_of("cnn");
    nn::replace(*model.net, path, std::move(layer));
    return test::refusal([&] { write_vision_model(folder(), model); }, ErrorCategory::Unsupported);
  };
  using torch::nn::AnyModule;
  EXPECT_THAT(refuses("conv1", AnyModule(torch::nn::Tanh())), HasSubstr("'conv1'] expected a lin"));
  const Index inputs = 16 * 6 * 6;
  EXPECT_THAT(refuses("linear", AnyModule(nn::FrozenLinear(nn::FrozenLinearOptions{
                                    .in_features = inputs, .out_features = 4, .rank = 2}))),
              HasSubstr("got FrozenLinear"));
  nn::FactoredLinearOptions options;
  options.in_features = inputs;
  options.out_features = 4;
  options.mode = FactorMode::LowRank;
  options.rank = 2;
  options.epilogue.activation = nn::Activation::Relu;
  EXPECT_THAT(refuses("linear", AnyModule(nn::FactoredLinear(options))),
              HasSubstr("other options"));
  options.epilogue = {};
  options.bias = false;
  EXPECT_THAT(refuses("linear", AnyModule(nn::FactoredLinear(options))),
              HasSubstr("other options"));
  options.bias = true;
  EXPECT_EQ(refuses("linear", AnyModule(nn::FactoredLinear(options))), "");
  nn::SketchedConv2dOptions conv{.in_channels = 1, .out_channels = 16};
  conv.mode = FactorMode::LowRank;
  conv.rank = 4;
  EXPECT_THAT(refuses("conv1", AnyModule(nn::SketchedConv2d(conv))), HasSubstr("other options"))
      << "a bias";
  conv.bias = false;
  conv.rank = 300;
  EXPECT_THAT(refuses("conv1", AnyModule(nn::SketchedConv2d(conv))),
              HasSubstr("a rank of 1 to 256"));
  conv.rank = 256;
  EXPECT_EQ(refuses("conv1", AnyModule(nn::SketchedConv2d(conv))), "");
  EXPECT_EQ(factored_layers_of(*read_vision_model(folder()).net).front().rank, 256);
}

class FactoredStart : public FactoredLayers {
 protected:
  VisionConfig config(const char* model) const {
    test::write_bar_folder(folder_.path() / "data", 12, 4, 80, 20);
    VisionConfig out;
    out.data.path = (folder_.path() / "data").string();
    out.model.name = model;
    out.model.width = 16;
    out.model.layers = 1;
    out.model.init = folder().string();
    out.trainer.micro_batch = 16;
    out.loss.on_collapse = "off";
    return out;
  }
};

TEST_F(FactoredStart, is_the_factored_model) {
  for (const char* name : {"mlp", "cnn", "resnet20"}) {
    VisionModel written = factored_model(name);
    const VisionSetup setup = set_up_vision(config(name));
    EXPECT_EQ(factored_layers_of(*setup.model.ptr()), layers_to_factor(name)) << name;
    written.net->eval();
    setup.model.ptr()->eval();
    const Tensor images = at::randn({3, 1, 12, 12});
    EXPECT_TRUE(setup.model.ptr()->forward(images).equal(written.net->forward(images))) << name;
  }
}

// As of a dense model with other classes, the classifier begins anew, and is dense.
TEST_F(FactoredStart, keeps_a_new_classifier_of_other_classes) {
  factored_model("resnet20", 6);
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::Info);
  const VisionSetup setup = set_up_vision(config("resnet20"));
  set_log_level(LogLevel::Error);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("classifier not loaded: linear."), testing::Not(HasSubstr("missing"))));
  std::vector<FactoredLayer> expected = layers_to_factor("resnet20");
  expected.pop_back();
  EXPECT_EQ(factored_layers_of(*setup.model.ptr()), expected);
}

TEST_F(FactoredStart, leaves_alone_what_another_model_has) {
  factored_model("resnet20");
  const VisionSetup deeper = set_up_vision(config("resnet56"));
  EXPECT_EQ(factored_layers_of(*deeper.model.ptr()), layers_to_factor("resnet20"));
  nn::VisionSpec wide = model_of("resnet20").net->spec();
  wide.width = 24;
  nn::VisionNet wider = nn::make_vision_net(wide, 1);
  factor_layers_like(*wider, folder() / "model.safetensors");
  EXPECT_THAT(factored_layers_of(*wider), IsEmpty());
}

TEST_F(FactoredStart, ignores_a_config_of_another_format) {
  write_vision_model(folder(), model_of("cnn"));
  for (const Json& other : {Json::array(), Json{{"format", "x"}, {"factored_layers", 3}},
                            Json{{"factored_layers", 3}}}) {
    write_json_file(folder() / "config.json", other);
    EXPECT_THAT(factored_layers_of(*set_up_vision(config("cnn")).model.ptr()), IsEmpty());
  }
  write_json_file(folder() / "config.json", {{"format", "hone-vision"}, {"factored_layers", 3}});
  EXPECT_THAT(test::refusal([&] { set_up_vision(config("cnn")); }, ErrorCategory::CorruptFile),
              HasSubstr("for factored_layers"));
}

TEST_F(FactoredStart, trains_every_factor) {
  for (const char* name : {"cnn", "resnet20"}) {
    factored_model(name);
    const VisionConfig chosen = config(name);
    const VisionSetup setup = set_up_vision(chosen);
    const auto optimizer = make_optimizer(chosen, setup);
    const auto sketch_of = [&] {
      std::vector<Tensor> out;
      for (const auto& [path, value] : nn::buffers_by_path(*setup.model)) {
        if (path.ends_with(".sketch")) out.push_back(value.clone());
      }
      return out;
    };
    const std::vector<Tensor> sketches = sketch_of();
    EXPECT_EQ(sketches.size(), 1u);
    std::map<std::string, Tensor> before;
    for (const auto& [path, value] : nn::parameters_by_path(*setup.model)) {
      before[path] = value.detach().clone();
    }
    std::vector<double> losses;
    for (Index step = 0; step < 12; ++step) {
      optimizer->zero_grad();
      const trainer::LossSum loss = setup.task->micro_batch(step, 0);
      losses.push_back(loss.sum.item<double>());
      (loss.sum / loss.weight).backward();
      optimizer->step_with({});
    }
    for (const auto& [path, value] : nn::parameters_by_path(*setup.model)) {
      EXPECT_FALSE(value.equal(before.at(path))) << path;
    }
    EXPECT_TRUE(sketch_of().front().equal(sketches.front()));
    EXPECT_LT(losses.back(), losses.front()) << name;
  }
}

}  // namespace
}  // namespace hone::task
