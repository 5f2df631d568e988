// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/load_weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/data/image/image.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tensor_file.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace hone::nn {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using testing::UnorderedElementsAreArray;
using torch::Tensor;
using State = std::map<std::string, Tensor>;

ResNet make_net(std::uint64_t seed, const char* name = "resnet20", Index classes = 4,
                Index channels = 3) {
  return ResNet(VisionSpec{.name = name,
                           .width = 4,
                           .channels = channels,
                           .height = 16,
                           .image_width = 16,
                           .classes = classes},
                seed);
}

State state_of(const torch::nn::Module& net) {
  State out;
  for (const auto& [name, value] : parameters_by_path(net)) out[name] = value.detach().clone();
  for (const auto& [name, value] : buffers_by_path(net)) out[name] = value.clone();
  return out;
}

bool is_same(const State& a, const State& b) {
  return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& item) {
           return b.contains(item.first) && item.second.equal(b.at(item.first));
         });
}

class LoadWeights : public testing::Test {
 protected:
  fs::path write(const State& state, const std::string& prefix = "") const {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, value] : state) tensors.push_back({prefix + name, value});
    const fs::path path = folder_.path() / "weights.safetensors";
    write_tensors(path, tensors);
    return path;
  }
  // The message and category of a refusal, which changes nothing.
  static std::pair<std::string, ErrorCategory> refusal(ResNet& net, const fs::path& path,
                                                       bool strict = false) {
    const State before = state_of(*net);
    try {
      load_weights(*net, path, {.strict = strict});
    } catch (const Error& error) {
      EXPECT_TRUE(is_same(state_of(*net), before)) << "changed by a refused file";
      return {error.what(), error.category()};
    }
    ADD_FAILURE() << "loaded";
    return {"", ErrorCategory::Internal};
  }

  test::TemporaryFolder folder_;
};

TEST_F(LoadWeights, takes_everything_also_below_a_wrapper) {
  for (const char* name : {"resnet20", "resnet18", "resnet50"}) {
    for (const char* prefix : {"", "module."}) {
      const ResNet from = make_net(1, name);
      ResNet to = make_net(2, name);
      from->forward(at::randn({4, 3, 16, 16}));  // moves the running means
      const State state = state_of(*from);
      const LoadedWeights loaded = load_weights(*to, write(state, prefix), {.strict = true});
      EXPECT_EQ(loaded.tensors, static_cast<Index>(state.size()));
      std::vector<std::string> names;
      for (const NamedTensor& parameter : parameters_by_path(*to)) names.push_back(parameter.name);
      EXPECT_THAT(loaded.parameters, UnorderedElementsAreArray(names));
      EXPECT_TRUE(loaded.is_complete());
      EXPECT_EQ(loaded.mismatches(), "");
      EXPECT_TRUE(is_same(state_of(*to), state));
      for (const Tensor& parameter : to->parameters()) EXPECT_TRUE(parameter.requires_grad());
    }
  }
}

TEST_F(LoadWeights, names_what_does_not_match_and_loads_the_rest) {
  const ResNet from = make_net(1);
  ResNet to = make_net(2);
  const State before = state_of(*to);
  State state = state_of(*from);
  state.erase("layer2.1.bn1.bias");
  state.erase("bn1.num_batches_tracked");
  state["conv1.weight"] = at::zeros({4, 1, 3, 3});
  state["layer1.0.bn1.weight"] = at::ones({4}, at::kInt);
  state["layer9.weight"] = at::zeros({2, 3});
  const LoadedWeights loaded = load_weights(*to, write(state));
  EXPECT_THAT(loaded.missing, ElementsAre("layer2.1.bn1.bias"));
  EXPECT_THAT(loaded.unexpected, ElementsAre("'layer9.weight' [2, 3]"));
  EXPECT_THAT(loaded.misshaped,
              UnorderedElementsAre("conv1.weight [4, 1, 3, 3] (model: [4, 3, 3, 3])",
                                   "layer1.0.bn1.weight [4] of integers (model: [4])"));
  EXPECT_THAT(loaded.classifier, IsEmpty());
  EXPECT_EQ(loaded.tensors, static_cast<Index>(before.size()) - 4);
  EXPECT_EQ(loaded.mismatches(),
            "missing: layer2.1.bn1.bias; unexpected: 'layer9.weight' [2, 3]; of another shape: "
            "conv1.weight [4, 1, 3, 3] (model: [4, 3, 3, 3]), "
            "layer1.0.bn1.weight [4] of integers (model: [4])");
  const State source = state_of(*from);
  for (const auto& [name, value] : state_of(*to)) {
    const bool stays = name == "conv1.weight" || name == "layer2.1.bn1.bias" ||
                       name == "layer1.0.bn1.weight" || name == "bn1.num_batches_tracked";
    EXPECT_TRUE(value.equal((stays ? before : source).at(name))) << name;
  }
  const auto [message, category] = refusal(to, write(state), true);
  EXPECT_EQ(category, ErrorCategory::InvalidArgument);
  for (const char* text :
       {"Not every tensor", "layer2.1.bn1.bias", "layer9.weight", "[4, 1, 3, 3]"}) {
    EXPECT_THAT(message, HasSubstr(text));
  }
}

TEST_F(LoadWeights, the_classifier_is_loaded_as_a_whole_or_not_at_all) {
  for (const auto& [name, head] : {std::pair{"resnet20", "linear"}, {"resnet18", "fc"}}) {
    const std::string weight = std::string(head) + ".weight", bias = std::string(head) + ".bias";
    const ResNet from = make_net(1, name);
    State fewer = state_of(*from), none = fewer, half = fewer;
    fewer[weight] = at::zeros({3, fewer[weight].size(1)});
    fewer[bias] = at::zeros({3});
    none.erase(weight);
    none.erase(bias);
    half[weight] = at::zeros({4, 7});
    for (const State& state : {fewer, none, half}) {
      ResNet to = make_net(2, name);
      const State before = state_of(*to);
      const LoadedWeights loaded = load_weights(*to, write(state));
      EXPECT_THAT(loaded.missing, IsEmpty());
      EXPECT_THAT(loaded.unexpected, IsEmpty());
      EXPECT_THAT(loaded.misshaped, IsEmpty());
      EXPECT_FALSE(loaded.classifier.empty());
      EXPECT_THAT(loaded.mismatches(), HasSubstr("classifier not loaded: " + weight));
      EXPECT_EQ(loaded.tensors, static_cast<Index>(before.size()) - 2);
      EXPECT_EQ(loaded.parameters.size(), to->parameters().size() - 2);
      EXPECT_THAT(loaded.parameters, testing::Not(testing::Contains(testing::StartsWith(head))));
      const State after = state_of(*to);
      EXPECT_TRUE(after.at(weight).equal(before.at(weight)));
      EXPECT_TRUE(after.at(bias).equal(before.at(bias)));
      EXPECT_TRUE(after.at("conv1.weight").equal(state.at("conv1.weight")));
    }
    ResNet backbone = make_net(2, name, 0);
    const LoadedWeights loaded = load_weights(*backbone, write(state_of(*from)));
    EXPECT_THAT(loaded.unexpected, IsEmpty());
    EXPECT_EQ(loaded.classifier.size(), 2u);
    EXPECT_EQ(loaded.tensors, static_cast<Index>(state_of(*backbone).size()));
  }
}

TEST_F(LoadWeights, converts_other_floating_point_types) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kDouble}) {
    ResNet to = make_net(2);
    State state = state_of(*make_net(1));
    for (auto& [name, value] : state) {
      if (value.is_floating_point()) value = value.to(type);
    }
    load_weights(*to, write(state), {.strict = true});
    for (const auto& [name, value] : state_of(*to)) {
      EXPECT_TRUE(value.equal(state.at(name).to(value.scalar_type()))) << name;
    }
  }
}

TEST_F(LoadWeights, refuses_files_that_fit_nothing_or_are_no_weights) {
  ResNet net = make_net(1);
  const auto expect = [&](const fs::path& path, ErrorCategory category, const char* text) {
    const auto [message, got] = refusal(net, path);
    EXPECT_EQ(got, category) << message;
    EXPECT_THAT(message, HasSubstr(text));
    EXPECT_LT(message.size(), 600u);
  };
  const State state = state_of(*net);
  expect(write({{"x", at::zeros({2})}}), ErrorCategory::InvalidArgument, "No tensor fits");
  // Counters of batches, which all shapes share, are no weights.
  expect(write({{"bn1.num_batches_tracked", at::zeros({}, at::kLong)}}),
         ErrorCategory::InvalidArgument, "No tensor fits");
  State wider;
  for (const auto& [name, value] : state) wider[name] = at::zeros({77});
  expect(write(wider), ErrorCategory::InvalidArgument, "[77]");
  expect(write({}), ErrorCategory::InvalidArgument, "missing: conv1.weight");
  for (const double bad : {std::nan(""), 1e300}) {
    State broken = state;
    broken["layer1.0.conv1.weight"] = broken["layer1.0.conv1.weight"].to(at::kDouble);
    broken["layer1.0.conv1.weight"].view(-1)[3] = bad;
    expect(write(broken), ErrorCategory::CorruptFile, "finite values in layer1.0.conv1.weight");
  }
  State negative = state;
  negative["bn1.running_var"] = negative["bn1.running_var"].clone();
  negative["bn1.running_var"].view(-1)[0] = -5;
  expect(write(negative), ErrorCategory::CorruptFile,
         "expected variances of at least 0 in bn1.running_var, got -5");
  State twice = state;
  twice["module.bn1.bias"] = state.at("bn1.bias");
  expect(write(twice), ErrorCategory::CorruptFile, "one tensor 'bn1.bias'");
  const fs::path path = folder_.path() / "weights.safetensors";
  const std::string whole = read_text_file(write(state));
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, whole.size() / 2}) {
    write_text_file(path, whole.substr(0, size));
    EXPECT_EQ(refusal(net, path).second, ErrorCategory::CorruptFile) << size;
  }
  for (const char* magic : {"PK\x03\x04 and so on", "\x80\x02\x8a\x0a and so on"}) {
    write_text_file(path, magic);
    expect(path, ErrorCategory::Unsupported, "tools/pth_to_safetensors.py");
  }
  expect(folder_.path() / "none", ErrorCategory::NotFound, "none");
}

TEST_F(LoadWeights, finds_the_file_of_a_model_and_of_a_run) {
  const fs::path run = folder_.path() / "run", model = run / "model";
  fs::create_directories(model);
  EXPECT_THROW(weights_file_of(run), Error);
  EXPECT_THROW(weights_file_of(model), Error);
  const fs::path file = model / "model.safetensors";
  write_text_file(file, "x");
  EXPECT_EQ(weights_file_of(run), file);
  EXPECT_EQ(weights_file_of(model), file);
  EXPECT_EQ(weights_file_of(file), file);
}

// Training images 1000 to 1399 of CIFAR-10, of which these published weights know nearly all.
TEST_F(LoadWeights, the_published_resnet20_classifies_cifar10) {
  HONE_REQUIRE_TEST_DATA(weights, "vision/cifar10/resnet20-12fca82f.th");
  HONE_REQUIRE_TEST_DATA(picture, "vision/cifar10/cifar10_batch_1.png");
  HONE_REQUIRE_TEST_DATA(label_file, "vision/cifar10/cifar10_batch_0_1_labels.txt");
  constexpr Index kImages = 400, kSide = 32, kFirstLabel = 1000;
  const fs::path converted = folder_.path() / "resnet20.safetensors";
  const test::ProgramResult tool =
      test::Program({"/usr/bin/env", "python3",
                     test::source_file("tools/pth_to_safetensors.py").string(), weights.string(),
                     converted.string()})
          .wait();
  if (tool.status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(tool.status, 0) << tool.err;
  ResNet net(VisionSpec{.name = "resnet20", .channels = 3, .height = kSide, .image_width = kSide},
             1);
  EXPECT_EQ(load_weights(*net, converted, {.strict = true}).tensors, 97);
  net->eval();

  const MmapFile file(picture);
  const data::Image sheet = data::decode_image(file.bytes(), picture.string());
  ASSERT_EQ(sheet.width, kSide * kSide);  // one image a row
  ASSERT_GE(sheet.height, kImages);
  const Tensor bytes = at::empty({kImages, kSide, kSide, 3}, at::kByte);
  std::memcpy(bytes.data_ptr(), sheet.pixels.data(), bytes.nbytes());
  const Tensor mean = at::tensor({0.485, 0.456, 0.406}, at::kDouble),
               deviation = at::tensor({0.229, 0.224, 0.225}, at::kDouble);
  const Tensor images =
      ((bytes.to(at::kDouble) / 255 - mean) / deviation).permute({0, 3, 1, 2}).to(at::kFloat);
  std::istringstream labels(read_text_file(label_file));
  int label = 0;
  for (Index i = 0; i < kFirstLabel; ++i) labels >> label;
  const torch::NoGradGuard no_grad;
  const Tensor found = net->forward(images.contiguous()).argmax(1);
  Index right = 0;
  for (Index i = 0; i < kImages; ++i) {
    labels >> label;
    right += found[i].item<std::int64_t>() == label;
  }
  EXPECT_GE(right, 397) << "99.25 %";
}

}  // namespace
}  // namespace hone::nn
