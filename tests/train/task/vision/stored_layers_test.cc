// SPDX-License-Identifier: Apache-2.0
// Folders of classifiers with quantized weights, and with weights that are stored without zeros.
#include "hone/train/task/vision/stored_layers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/train/compress/prune.h"
#include "hone/train/compress/quantizable.h"
#include "hone/train/compress/quantize.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using torch::Tensor;

class StoredLayersFolder : public testing::Test {
 protected:
  VisionModel model_of(const char* name) const {
    return {.net = nn::make_vision_net({.name = name,
                                        .width = 16,
                                        .channels = 3,
                                        .height = 16,
                                        .image_width = 16,
                                        .classes = 5},
                                       /*seed=*/3),
            .classes = {"a", "b", "c", "d", "e"},
            .stats = {{0.1, 0.2, 0.3}, {0.5, 0.6, 0.7}}};
  }
  static Tensor outputs(const VisionModel& model) {
    const at::NoGradGuard no_grad;
    const nn::EvaluationScope evaluation(*model.net.ptr());
    const Tensor x = at::linspace(-1, 1, 2 * 3 * 16 * 16).sin().reshape({2, 3, 16, 16});
    return model.net.ptr()->forward(x);
  }
  Index bytes() const { return static_cast<Index>(fs::file_size(folder() / "model.safetensors")); }
  fs::path folder() const { return folder_.path() / "model"; }

  test::TemporaryFolder folder_;
};

TEST_F(StoredLayersFolder, keeps_codes_of_every_kind_of_format) {
  for (const char* name : {"resnet20", "cnn", "mlp"}) {
    write_vision_model(folder(), model_of(name));
    const Index dense = bytes();
    for (const char* format : {"int8:row", "int4:g16", "log4:g16", "q8_0", "f16", "bf16"}) {
      const VisionModel model = model_of(name);
      ASSERT_TRUE(nn::quantize(model.net, {.spec = format}).is_applied) << name << format;
      write_vision_model(folder(), model);
      EXPECT_LT(bytes(), dense * 3 / 4) << name << " " << format;
      const VisionModel read = read_vision_model(folder());
      EXPECT_TRUE(outputs(read).equal(outputs(model))) << name << " " << format;
      EXPECT_EQ(nn::quantized_layers(*read.net.ptr()).size(),
                nn::quantized_layers(*model.net.ptr()).size());
      EXPECT_EQ(nn::stored_bytes(*read.net), nn::stored_bytes(*model.net)) << name << format;
    }
  }
}

TEST_F(StoredLayersFolder, leaves_out_zeros_of_weights_and_of_codes) {
  const VisionModel model = model_of("resnet20");
  write_vision_model(folder(), model);
  const Index dense = bytes();
  nn::prune(*model.net.ptr(), {.sparsity = 0.7});
  write_vision_model(folder(), model);
  EXPECT_LT(bytes(), dense * 2 / 5);
  const VisionModel read = read_vision_model(folder());
  EXPECT_TRUE(outputs(read).equal(outputs(model)));
  EXPECT_TRUE(has_stored_layers(folder() / "model.safetensors"));

  ASSERT_TRUE(nn::quantize(model.net, {.spec = "int8:row"}).is_applied);
  write_vision_model(folder(), model);
  EXPECT_LT(bytes(), dense / 5);
  EXPECT_TRUE(outputs(read_vision_model(folder())).equal(outputs(model)));
}

TEST_F(StoredLayersFolder, remembers_which_layers_compute_with_a_copy) {
  const VisionModel model = model_of("resnet20");
  ASSERT_TRUE(nn::quantize(model.net, {.spec = "int8:row"}).is_applied);
  const auto places = nn::quantized_layers(*model.net.ptr());
  places.at(2).layer->set_product(nn::ProductKind::Decoded);
  write_vision_model(folder(), model);
  const VisionModel read = read_vision_model(folder());
  for (const auto& [path, layer] : nn::quantized_layers(*read.net.ptr())) {
    EXPECT_EQ(layer->product() == nn::ProductKind::Decoded, path == places[2].path) << path;
  }
  const fs::path config = folder() / "config.json";
  Json json = read_json_file(config);
  json["decoded_layers"] = Json::array({"nowhere"});
  write_json_file(config, json);
  EXPECT_THAT(test::error_of([&] { read_vision_model(folder()); }), HasSubstr("decoded_layers"));
}

TEST_F(StoredLayersFolder, refuses_codes_that_do_not_fit_the_model) {
  const fs::path file = folder() / "model.safetensors";
  const VisionModel model = model_of("mlp");
  ASSERT_TRUE(nn::quantize(model.net, {.spec = "int8:row"}).is_applied);
  write_vision_model(folder(), model);
  const std::vector<NamedTensor> good = read_tensors(MmapFile(file));
  SafetensorsMetadata metadata;
  {
    const MmapFile mapped(file);
    metadata = parse_safetensors(mapped.bytes(), file.string()).metadata;
  }
  const auto refusal = [&](const std::function<void(std::vector<NamedTensor>&, Json&)>& change) {
    std::vector<NamedTensor> tensors;
    for (const NamedTensor& tensor : good) tensors.push_back({tensor.name, tensor.value.clone()});
    SafetensorsMetadata changed = metadata;
    for (auto& [key, value] : changed) {
      if (key != "hone.tensors") continue;
      Json manifest = parse_json(value, "test", {.depth = 4});
      change(tensors, manifest);
      value = manifest.dump();
    }
    write_tensors(file, tensors, changed);
    return test::error_of([&] { read_vision_model(folder()); });
  };
  const std::string first = good.at(0).name.substr(0, good[0].name.rfind('.'));
  EXPECT_THAT(refusal([&](auto&, Json& manifest) { manifest[first]["rows"] = 7; }),
              HasSubstr("codes"));
  EXPECT_THAT(refusal([&](auto&, Json& manifest) { manifest[first]["spec"] = "f32"; }),
              HasSubstr("sparse"));
  EXPECT_THAT(refusal([&](auto&, Json& manifest) { manifest.erase(first); }), HasSubstr(first));
  EXPECT_THAT(refusal([&](auto&, Json& manifest) {
                const Json entry = manifest[first];
                manifest.erase(first);
                manifest["other.weight"] = entry;
              }),
              HasSubstr("other.weight"));
  EXPECT_THAT(refusal([&](auto& tensors, Json&) {
                for (NamedTensor& tensor : tensors) {
                  if (tensor.name == first + ".scales") tensor.value.fill_(0xff);
                }
              }),
              HasSubstr("finite"));
  EXPECT_THAT(refusal([&](auto& tensors, Json&) { tensors.erase(tensors.begin()); }),
              HasSubstr(first));
  EXPECT_THAT(refusal([&](auto& tensors, Json&) {
                tensors.push_back({"extra", at::zeros({3})});
              }),
              HasSubstr("extra"));
}

}  // namespace
}  // namespace hone::task
