// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/resnet.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/peer.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace hone::nn {
namespace {

using testing::HasSubstr;
using torch::Tensor;
using Stage = ResNetImpl::Stage;
using Shape = std::vector<std::int64_t>;

VisionSpec spec_of(const char* name, Index classes, Index height, Index width) {
  return {.name = name, .channels = 3, .height = height, .image_width = width, .classes = classes};
}
// With eight channels in the first stage, which makes the same layers fast.
constexpr Index kNarrow = 8;
VisionSpec narrow_spec(const char* name, Index classes, Index height, Index width) {
  VisionSpec spec = spec_of(name, classes, height, width);
  spec.width = kNarrow;
  return spec;
}

// For networks whose values do not matter.
Tensor any_values(const TensorRequest& request) { return at::empty(request.sizes, request.type); }

Index count_parameters(const ResNet& net) {
  Index count = 0;
  for (const Tensor& parameter : net->parameters()) count += parameter.numel();
  return count;
}

struct Published {
  const char* name;
  std::vector<int> blocks;
  int convs;  // of a block
  Index width, classes, parameters, features;
};
// Parameters as torchvision counts them with its 1000 classes, and as akamaster/
// pytorch_resnet_cifar10 (0.27 M, 0.46 M, 0.66 M, 0.85 M) with 10.
const std::vector<Published> kPublished = {
    {"resnet18", {2, 2, 2, 2}, 2, 64, 1000, 11'689'512, 512},
    {"resnet34", {3, 4, 6, 3}, 2, 64, 1000, 21'797'672, 512},
    {"resnet50", {3, 4, 6, 3}, 3, 64, 1000, 25'557'032, 2048},
    {"resnet20", {3, 3, 3}, 2, 16, 10, 269'722, 64},
    {"resnet32", {5, 5, 5}, 2, 16, 10, 464'154, 64},
    {"resnet44", {7, 7, 7}, 2, 16, 10, 658'586, 64},
    {"resnet56", {9, 9, 9}, 2, 16, 10, 853'018, 64}};

TEST(ResNet, has_the_published_number_of_parameters) {
  for (const Published& model : kPublished) {
    const ResNet net(spec_of(model.name, model.classes, 32, 32), any_values);
    EXPECT_EQ(count_parameters(net), model.parameters) << model.name;
    const ResNet backbone(spec_of(model.name, 0, 32, 32), any_values);
    EXPECT_EQ(count_parameters(backbone), model.parameters - (model.features + 1) * model.classes)
        << model.name;
    EXPECT_EQ(backbone->feature_channels(), model.features);
    EXPECT_EQ(backbone->feature_channels(Stage::Penultimate), model.features / 2);
  }
}

// torchvision.models.resnet.ResNet: conv1, bn1, layer<stage>.<block>.{conv<i>, bn<i>} and, where
// the first block of a stage changes the shape, downsample.{0, 1}; fc. For CIFAR: no downsample,
// linear.
std::vector<std::pair<std::string, Shape>> parameters_by_rule(const Published& model) {
  std::vector<std::pair<std::string, Shape>> out;
  const bool small = model.blocks.size() == 3;
  const auto conv = [&](const std::string& name, const std::string& norm, Index in, Index to,
                        Index kernel) {
    out.push_back({name + ".weight", {to, in, kernel, kernel}});
    out.push_back({norm + ".weight", {to}});
    out.push_back({norm + ".bias", {to}});
  };
  conv("conv1", "bn1", 3, model.width, small ? 3 : 7);
  Index in = model.width;
  for (std::size_t stage = 0; stage < model.blocks.size(); ++stage) {
    const Index inner = model.width << stage, to = model.convs == 3 ? 4 * inner : inner;
    for (int block = 0; block < model.blocks[stage]; ++block) {
      const std::string at = concat("layer", stage + 1, ".", block, ".");
      if (model.convs == 3) {
        conv(at + "conv1", at + "bn1", in, inner, 1);
        conv(at + "conv2", at + "bn2", inner, inner, 3);
        conv(at + "conv3", at + "bn3", inner, to, 1);
      } else {
        conv(at + "conv1", at + "bn1", in, to, 3);
        conv(at + "conv2", at + "bn2", to, to, 3);
      }
      if (!small && block == 0 && in != to) {
        conv(at + "downsample.0", at + "downsample.1", in, to, 1);
      }
      in = to;
    }
  }
  out.push_back({small ? "linear.weight" : "fc.weight", {model.classes, in}});
  out.push_back({small ? "linear.bias" : "fc.bias", {model.classes}});
  return out;
}

TEST(ResNet, has_the_names_shapes_and_order_of_torchvision) {
  for (const Published& model : kPublished) {
    const ResNet net(spec_of(model.name, model.classes, 32, 32), any_values);
    std::vector<std::pair<std::string, Shape>> names;
    for (const auto& [name, value] : parameters_by_path(*net)) {
      names.push_back({name, value.sizes().vec()});
    }
    const auto expected = parameters_by_rule(model);
    EXPECT_EQ(names, expected) << model.name;
    std::map<std::string, Shape> buffers, expected_buffers;
    for (const auto& item : net->named_buffers()) {
      buffers[item.key()] = item.value().sizes().vec();
    }
    for (const auto& [name, shape] : expected) {
      // Only norms have vectors of weights.
      if (shape.size() != 1 || !name.ends_with(".weight")) continue;
      const std::string norm = name.substr(0, name.size() - 6);
      expected_buffers[norm + "running_mean"] = shape;
      expected_buffers[norm + "running_var"] = shape;
      expected_buffers[norm + "num_batches_tracked"] = {};
    }
    EXPECT_EQ(buffers, expected_buffers) << model.name;
  }
}

TEST(ResNet, maps_halve_rounding_up) {
  const torch::NoGradGuard no_grad;
  const auto half = [](Index n) { return (n + 1) / 2; };
  for (const Published& model : kPublished) {
    for (const auto& [height, width] : {std::pair<Index, Index>{64, 64}, {33, 50}, {37, 4}}) {
      ResNet net(narrow_spec(model.name, 7, height, width), 1);
      net->eval();
      net->to(at::kDouble);
      const Index features = model.features * kNarrow / model.width;
      const bool small = model.blocks.size() == 3;
      const auto side = [&](Index n, bool last) {
        const int halvings = small ? 1 : 4;  // of stem, maximum, second and third stage
        for (int i = 0; i < halvings + (last ? 1 : 0); ++i) n = half(n);
        return n;
      };
      const Tensor images = at::ones({2, 3, height, width}, at::kDouble);
      EXPECT_EQ(net->forward_features(images).sizes(),
                (Shape{2, features, side(height, true), side(width, true)}))
          << model.name;
      EXPECT_EQ(net->forward_features(images, Stage::Penultimate).sizes(),
                (Shape{2, features / 2, side(height, false), side(width, false)}))
          << model.name;
      const Tensor logits = net->forward(images);
      EXPECT_EQ(logits.sizes(), (Shape{2, 7}));
      EXPECT_TRUE(at::isfinite(logits).all().item<bool>());
    }
  }
}

// The definition, stage by stage, from the parameters by their names.
class Reference {
 public:
  Reference(const ResNet& net, const Published& model) : model_(model) {
    for (const auto& [name, value] : parameters_by_path(*net)) values_[name] = value;
    for (const auto& [name, value] : buffers_by_path(*net)) values_[name] = value;
    for (auto& [name, value] : values_) value = value.detach().to(at::kDouble);
  }

  Tensor stage(Tensor x, std::size_t stages) const {
    const bool small = model_.blocks.size() == 3;
    x = norm(conv(x, "conv1", small ? 1 : 2, small ? 1 : 3), "bn1").relu();
    if (!small) {
      // The maximum over 3 x 3 with one pixel of padding at stride 2.
      x = at::constant_pad_nd(x, {1, 1, 1, 1}, -1e300).unfold(2, 3, 2).unfold(3, 3, 2);
      x = x.amax({4, 5});
    }
    for (std::size_t s = 0; s < stages; ++s) {
      for (int block = 0; block < model_.blocks[s]; ++block) {
        x = run_block(x, concat("layer", s + 1, ".", block, "."), s > 0 && block == 0 ? 2 : 1);
      }
    }
    return x;
  }
  Tensor logits(const Tensor& images) const {
    const Tensor mean = stage(images, model_.blocks.size()).mean({2, 3});
    const std::string head = model_.blocks.size() == 3 ? "linear" : "fc";
    return at::mm(mean, values_.at(head + ".weight").t()) + values_.at(head + ".bias");
  }

 private:
  Tensor conv(const Tensor& x, const std::string& name, Index stride, Index padding) const {
    return at::conv2d(x, values_.at(name + ".weight"), {}, stride, padding);
  }
  Tensor norm(const Tensor& x, const std::string& name) const {
    const auto column = [&](const char* part) { return values_.at(name + part).view({-1, 1, 1}); };
    return (x - column(".running_mean")) / (column(".running_var") + 1e-5).sqrt() *
               column(".weight") +
           column(".bias");
  }
  Tensor run_block(const Tensor& x, const std::string& at, Index stride) const {
    Tensor y;
    if (model_.convs == 3) {
      y = norm(conv(x, at + "conv1", 1, 0), at + "bn1").relu();
      y = norm(conv(y, at + "conv2", stride, 1), at + "bn2").relu();
      y = norm(conv(y, at + "conv3", 1, 0), at + "bn3");
    } else {
      y = norm(conv(x, at + "conv1", stride, 1), at + "bn1").relu();
      y = norm(conv(y, at + "conv2", 1, 1), at + "bn2");
    }
    Tensor shortcut = x;
    if (values_.contains(at + "downsample.0.weight")) {
      shortcut = norm(conv(x, at + "downsample.0", stride, 0), at + "downsample.1");
    } else if (stride == 2) {
      shortcut = at::zeros_like(y);
      const Index added = (y.size(1) - x.size(1)) / 2;
      shortcut.narrow(1, added, x.size(1))
          .copy_(x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2));
    }
    return (y + shortcut).relu();
  }

  Published model_;
  std::map<std::string, Tensor> values_;
};

// Buffers and norms of a new model are all zeros and ones, which would hide a missing one.
void make_distinct(const ResNet& net) {
  at::manual_seed(3);
  const torch::NoGradGuard no_grad;
  for (const auto& item : net->named_parameters()) {
    if (item.value().dim() == 1) item.value().add_(at::randn_like(item.value()) * 0.1);
  }
  for (const auto& item : net->named_buffers()) {
    if (item.value().dim() == 1) item.value().add_(at::rand_like(item.value()) * 0.2);
  }
}

TEST(ResNet, computes_its_definition) {
  const torch::NoGradGuard no_grad;
  for (const Published& model : kPublished) {
    ResNet net(narrow_spec(model.name, 11, 45, 38), 2);
    make_distinct(net);
    net->eval();
    const Reference reference(net, model);
    net->to(at::kDouble);
    const Tensor images = at::randn({2, 3, 45, 38}, at::kDouble);
    const auto expect_close = [&](const Tensor& got, const Tensor& want) {
      EXPECT_LT((got - want).abs().max().item<double>(), 1e-9 * want.abs().max().item<double>())
          << model.name;
    };
    const std::size_t stages = model.blocks.size();
    expect_close(net->forward_features(images), reference.stage(images, stages));
    expect_close(net->forward_features(images, Stage::Penultimate),
                 reference.stage(images, stages - 1));
    expect_close(net->forward(images), reference.logits(images));
  }
}

// tools/pth_to_safetensors.py checks files against its own list of layers.
TEST(ResNet, the_converter_knows_the_tensors_of_every_network) {
  const std::string script =
      "import json, pth_to_safetensors as tool\n"
      "print(json.dumps({name: tool.shapes_of(name, 3, 7) for name in tool.RESNETS}))";
  const test::ProgramResult tool =
      test::Program({"/usr/bin/env", "python3", "-c", script},
                    {"PYTHONPATH=" + test::source_file("tools").string()})
          .wait();
  if (tool.status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(tool.status, 0) << tool.err;
  const Json found = parse_json(tool.out, "pth_to_safetensors");
  EXPECT_EQ(found.size(), resnets().size());
  for (const ResNetLayout& layout : resnets()) {
    const std::string name(layout.name);
    const ResNet net(spec_of(name.c_str(), 7, 32, 32), any_values);
    std::map<std::string, Shape> expected;
    for (const NamedTensor& tensor : parameters_by_path(*net)) {
      expected[tensor.name] = tensor.value.sizes().vec();
    }
    for (const NamedTensor& tensor : buffers_by_path(*net)) {
      expected[tensor.name] = tensor.value.sizes().vec();
    }
    ASSERT_TRUE(found.contains(name));
    EXPECT_EQ((found.at(name).get<std::map<std::string, Shape>>()), expected) << name;
  }
}

TEST(ResNet, training_normalizes_over_the_batch_and_reaches_every_parameter) {
  for (const char* name : {"resnet18", "resnet50", "resnet20"}) {
    ResNet net(narrow_spec(name, 5, 40, 40), 1);
    EXPECT_TRUE(net->mixes_batch());
    const Tensor images = at::randn({4, 3, 40, 40});
    const Tensor mean = net->named_buffers()["layer2.0.bn1.running_mean"];
    net->forward(images).square().sum().backward();
    EXPECT_GT(mean.abs().max().item<double>(), 0);
    EXPECT_EQ(net->named_buffers()["bn1.num_batches_tracked"].item<std::int64_t>(), 1);
    for (const auto& item : net->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(at::isfinite(item.value().grad()).all().item<bool>()) << item.key();
      EXPECT_GT(item.value().grad().abs().max().item<double>(), 0) << item.key();
    }
  }
}

TEST(ResNet, refuses_other_names_and_images) {
  EXPECT_THAT(test::error_of([] { ResNet(spec_of("cnn", 5, 32, 32), 1); }),
              HasSubstr("the name of a ResNet, got cnn"));
  EXPECT_THAT(test::error_of([] { ResNet(spec_of("resnet101", 5, 32, 32), 1); }),
              HasSubstr("resnet50 or resnet56, got resnet101"));
  EXPECT_THAT(test::error_of([] { ResNet(spec_of("resnet18", 1, 32, 32), 1); }),
              HasSubstr("two classes"));
  const ResNet net(spec_of("resnet20", 5, 32, 32), 1);
  EXPECT_THAT(test::error_of([&] {
                net->forward_features(at::zeros({2, 1, 32, 32}));
              }),
              HasSubstr("images [batch, 3, height, width]"));
  EXPECT_THAT(test::error_of([&] {
                net->forward_features(at::zeros({3, 32, 32}));
              }),
              HasSubstr("3 dimensions"));
  EXPECT_THAT(test::error_of([&] {
                net->forward(at::zeros({2, 3, 31, 32}));
              }),
              HasSubstr("images [batch, 3, 32, 32]"));
}

// torchvision loads what hone has with strict=True and computes the same logits.
TEST(ResNet, agrees_with_torchvision) {
  HONE_REQUIRE_PEER("torch", "torchvision", "safetensors");
  const torch::NoGradGuard no_grad;
  const test::TemporaryFolder folder;
  for (const char* name : {"resnet18", "resnet34", "resnet50"}) {
    ResNet net(spec_of(name, 17, 97, 64), 5);
    make_distinct(net);
    net->eval();
    std::vector<NamedTensor> tensors = parameters_by_path(*net);
    std::ranges::copy(buffers_by_path(*net), std::back_inserter(tensors));
    write_tensors(folder.path() / "model.safetensors", tensors, {{"format", "pt"}});
    const Tensor images = at::randn({2, 3, 97, 64});
    write_tensors(folder.path() / "images.safetensors", {{"images", images}});
    test::run_peer("tests/train/nn/torchvision_logits.py", {name, folder.path().string()});
    const Tensor logits = read_tensors(MmapFile(folder.path() / "logits.safetensors"))[0].value;
    EXPECT_LT((logits - net->forward(images)).abs().max().item<double>(), 1e-4) << name;
  }
}

}  // namespace
}  // namespace hone::nn
