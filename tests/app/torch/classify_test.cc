// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/classify.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "hone/app/torch/train_vision.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/log.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/tensor_file.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A model of 12 x 12 pictures of a bar in one of four rows, trained for a moment.
class Classify : public testing::Test {
 protected:
  Classify() { set_log_level(LogLevel::Error); }
  TrainVisionResult train(const char* model) {
    test::write_bar_folder(folder_.path() / "data", 12, 4, 200, 40);
    TrainVisionJob job;
    job.config.model = {.name = model, .width = 8};
    job.config.data.path = folder_.path() / "data";
    job.config.lr.warm_up_steps = 2;
    job.config.trainer.steps = 8;
    job.config.trainer.micro_batch = 20;
    job.out = folder_.path() / "run";
    job.fresh = true;
    job.threads = 1;
    return train_vision(job);
  }
  fs::path write_picture(Index row, std::uint64_t seed) const {
    const fs::path path = folder_.path() / (std::to_string(seed) + ".pgm");
    test::write_bytes(path, "P5\n12 12\n255\n" + test::bar_picture(12, row, seed));
    return path;
  }
  // What the model folder says after `change`; it is as before then.
  std::string refusal_with(const std::string& file,
                           const std::function<void(const fs::path&)>& change,
                           ErrorCategory category = ErrorCategory::CorruptFile) const {
    const fs::path path = folder_.path() / "run" / "model" / file;
    const std::string before = read_text_file(path);
    change(path);
    std::string message;
    try {
      task::read_vision_model(path.parent_path());
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), category) << error.what();
      message = error.what();
    }
    write_text_file(path, before);
    return message;
  }

  test::TemporaryFolder folder_;
};

// softmax(W₂ relu(W₁ x + b₁) + b₂), x = (v / 255 - mean) / std, from the file's tensors in fp64.
TEST_F(Classify, names_the_classes_of_files_with_the_probabilities_of_the_formula) {
  const fs::path folder = train("mlp").model;
  std::vector<fs::path> paths;
  for (Index i = 0; i < 70; ++i) {  // more than a batch
    paths.push_back(write_picture(3 * (i % 4), static_cast<std::uint64_t>(5000 + i)));
  }
  const auto images = classify_images({.model = folder, .threads = 1}, paths, 9);
  const task::VisionModel model = task::read_vision_model(folder);
  std::map<std::string, torch::Tensor> tensors;
  for (const auto& [name, value] : nn::parameters_by_path(*model.net)) tensors[name] = value;
  const auto at = [&](const char* name) { return tensors.at(name).detach().to(torch::kDouble); };
  ASSERT_EQ(images.size(), paths.size());
  for (std::size_t i = 0; i < images.size(); ++i) {
    EXPECT_EQ(images[i].path, paths[i]);
    const std::string pixels = test::bar_picture(12, 3 * (static_cast<Index>(i) % 4), 5000 + i);
    torch::Tensor x = at::empty({144}, torch::kDouble);
    for (Index j = 0; j < 144; ++j) {
      const auto value = static_cast<unsigned char>(pixels[static_cast<std::size_t>(j)]);
      x[j] = (value / 255.0 - model.stats.mean[0]) / model.stats.std[0];
    }
    for (const char* layer : {"hidden0", "hidden1"}) {
      x = (at::mv(at((std::string(layer) + ".weight").c_str()), x) +
           at((std::string(layer) + ".bias").c_str()))
              .relu();
    }
    x = (at::mv(at("linear.weight"), x) + at("linear.bias")).softmax(0);
    ASSERT_EQ(images[i].classes.size(), 4u) << "as many as there are";
    for (std::size_t k = 0; k < 4; ++k) {
      const auto& [name, probability] = images[i].classes[k];
      EXPECT_NEAR(probability, x[std::stoi(name)].item<double>(), 1e-5);
      if (k > 0) {
        EXPECT_LE(probability, images[i].classes[k - 1].probability);
      }
    }
  }
}

TEST_F(Classify, an_image_that_cannot_be_decoded_is_named_beside_the_others) {
  const fs::path folder = train("mlp").model, bad = folder_.path() / "bad.pgm";
  test::write_bytes(bad, "P5\n12 12\n255\n");
  const auto images =
      classify_images({.model = folder, .threads = 1}, {write_picture(3, 1), bad, bad}, 2);
  EXPECT_EQ(images[0].classes.size(), 2u);
  for (const std::size_t i : {1, 2}) {
    EXPECT_TRUE(images[i].classes.empty());
    EXPECT_THAT(images[i].problem, HasSubstr("bad.pgm"));
  }
  EXPECT_EQ(to_json(images).at("images").at(0).count("error"), 0u);
  EXPECT_EQ(to_json(images).at("images").at(2).count("error"), 1u);
}

TEST_F(Classify, refuses_a_model_that_is_not_what_it_says) {
  const fs::path folder = train("mlp").model;
  const auto config = [&](const char* key, const Json& value,
                          ErrorCategory category = ErrorCategory::CorruptFile) {
    return refusal_with(
        "config.json",
        [&](const fs::path& path) {
          Json json = read_json_file(path);
          json[key] = value;
          write_json_file(path, json);
        },
        category);
  };
  EXPECT_THAT(config("format", "other", ErrorCategory::Unsupported), HasSubstr("hone-vision"));
  EXPECT_THAT(config("format", 3), HasSubstr("format"));
  EXPECT_THAT(config("model", "vit"), HasSubstr("resnet50 or resnet56, got vit"));
  EXPECT_THAT(config("model", "cnn"), HasSubstr("tensor conv1.weight"));
  EXPECT_THAT(config("width", 16), HasSubstr("[16, 144]"));
  EXPECT_THAT(config("width", std::int64_t{1} << 40), HasSubstr("65536 for width"));
  EXPECT_THAT(config("width", 1.5), HasSubstr("whole number"));
  EXPECT_THAT(config("layers", 1), HasSubstr("hidden1"));
  EXPECT_THAT(config("layers", 0), HasSubstr("linear.weight"));
  EXPECT_THAT(config("height", 4096), HasSubstr("[8, 49152]"));
  EXPECT_THAT(config("channels", 0), HasSubstr("channels"));
  EXPECT_THAT(config("classes", Json::array({"a"})), HasSubstr("classes"));
  EXPECT_THAT(config("classes", Json::array({"a", "b", "c"})), HasSubstr("[3, 8]"));
  EXPECT_THAT(config("classes", Json::array({"a", 1, "c", "d"})), HasSubstr("strings"));
  EXPECT_THAT(config("mean", Json::array({0.1, 0.2})), HasSubstr("1 to 1 entries"));
  EXPECT_THAT(config("std", Json::array({0})), HasSubstr("std"));
  EXPECT_EQ(config("width", 8), "");

  const auto tensors = [&](const std::function<void(std::vector<NamedTensor>&)>& change) {
    return refusal_with("model.safetensors", [&](const fs::path& path) {
      std::vector<NamedTensor> all = read_tensors(MmapFile(path));
      change(all);
      write_tensors(path, all);
    });
  };
  EXPECT_THAT(tensors([](auto& all) {
                all.push_back({"more", at::zeros({2})});
              }),
              HasSubstr("got 'more'"));
  EXPECT_THAT(tensors([](auto& all) { all.pop_back(); }), HasSubstr("got none"));
  EXPECT_THAT(tensors([](auto& all) { all[0].value = all[0].value.to(torch::kDouble); }),
              HasSubstr("Double"));
  EXPECT_THAT(tensors([](auto& all) { all[0].value.view(-1)[0] = std::nan(""); }),
              HasSubstr("finite values"));
  EXPECT_THAT(
      refusal_with("model.safetensors", [](const fs::path& path) { fs::resize_file(path, 100); }),
      HasSubstr("safetensors"));
}

}  // namespace
}  // namespace hone::app
