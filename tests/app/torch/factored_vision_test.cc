// SPDX-License-Identifier: Apache-2.0
// A classifier with factored layers in the commands that take one.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "hone/app/torch/classify.h"
#include "hone/app/torch/eval_vision.h"
#include "hone/app/torch/train_vision.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/sketch/sketched_conv.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/layer_tree.h"
#include "hone/train/task/vision/factored_layers.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/support/image_files.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

// The error of sums in another order in f32, through 20 layers.
constexpr double kRounding = 1e-4;

class FactoredVision : public testing::Test {
 protected:
  FactoredVision() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(folder_.path() / "data", 12, 4, 200, 40);
  }
  TrainVisionJob job(const char* model, const char* out) const {
    TrainVisionJob job;
    job.config.model = {.name = model, .width = 16};
    job.config.data.path = folder_.path() / "data";
    job.config.lr.warm_up_steps = 2;
    job.config.trainer.steps = 12;
    job.config.trainer.micro_batch = 20;
    job.config.trainer.checkpoint_every = 5;
    job.out = folder_.path() / out;
    job.threads = 1;
    return job;
  }
  // Trains a model and writes it with convolutions and classifier factored in one folder, and with
  // dense ones of the same weights in another.
  void write_models(const char* name) const {
    TrainVisionJob first = job(name, "first");
    first.fresh = true;
    const fs::path trained = train_vision(first).model;
    task::VisionModel dense = task::read_vision_model(trained);
    task::VisionModel factored = task::read_vision_model(trained);
    const torch::NoGradGuard no_grad;
    std::uint64_t seed = 1;
    for (const nn::Layer& layer : nn::layers_of(*dense.net)) {
      if (layer.slot == nullptr) continue;
      if (auto* conv = layer.module->as<torch::nn::Conv2d>()) {
        const nn::ConvFitOptions options{.mode = nn::FactorMode::Sketched,
                                         .fit = nn::Fit::Projection,
                                         .rank = 16,
                                         .terms = 2,
                                         .seed = seed++};
        nn::SketchedConv2d replacement = nn::from_conv(*conv, options);
        conv->weight.copy_(replacement->effective_weight());
        nn::replace(*factored.net, layer.path, torch::nn::AnyModule(replacement));
      } else if (auto* linear = layer.module->as<torch::nn::Linear>()) {
        nn::FitOptions options;
        options.rank = 3;
        nn::FactoredLinear replacement = nn::from_linear(*linear, options);
        linear->weight.copy_(replacement->effective_weight());
        nn::replace(*factored.net, layer.path, torch::nn::AnyModule(replacement));
      }
    }
    task::write_vision_model(folder_.path() / "dense", dense);
    task::write_vision_model(folder_.path() / "factored", factored);
  }

  test::TemporaryFolder folder_;
};

TEST_F(FactoredVision, is_evaluated_and_classifies_as_dense_layers_of_its_weights) {
  for (const char* name : {"cnn", "resnet20"}) {
    write_models(name);
    std::vector<fs::path> pictures;
    for (Index i = 0; i < 6; ++i) {
      pictures.push_back(folder_.path() / (std::to_string(i) + ".pgm"));
      test::write_bytes(pictures.back(),
                        "P5\n12 12\n255\n" + test::bar_picture(12, i % 4 * 3, 5000 + i));
    }
    std::vector<VisionCard> cards;
    std::vector<std::vector<ClassifiedImage>> classified;
    for (const char* model : {"dense", "factored"}) {
      VisionEvalOptions options;
      options.model = folder_.path() / model;
      options.data = (folder_.path() / "data").string();
      options.threads = 1;
      cards.push_back(evaluate_vision(options));
      classified.push_back(classify_images({.model = options.model, .threads = 1}, pictures, 1));
    }
    EXPECT_EQ(cards[1].images, 40);
    EXPECT_NEAR(cards[1].loss, cards[0].loss, kRounding * cards[0].loss) << name;
    for (std::size_t i = 0; i < pictures.size(); ++i) {
      EXPECT_EQ(classified[1][i].classes[0].name, classified[0][i].classes[0].name) << name;
      EXPECT_NEAR(classified[1][i].classes[0].probability, classified[0][i].classes[0].probability,
                  kRounding)
          << name;
    }
  }
}

TEST_F(FactoredVision, is_tuned_and_goes_on_after_an_interrupt_to_the_same_model) {
  for (const char* name : {"cnn", "resnet20"}) {
    write_models(name);
    const fs::path start = folder_.path() / "factored";
    const auto layers = task::factored_layers_of(*task::read_vision_model(start).net);
    ASSERT_GT(layers.size(), 1u);
    TrainVisionJob whole = job(name, "whole");
    whole.config.model.init = start.string();
    whole.fresh = true;
    const TrainVisionResult expected = train_vision(whole);
    EXPECT_EQ(task::factored_layers_of(*task::read_vision_model(expected.model).net), layers);

    TrainVisionJob parts = job(name, "parts");
    parts.config.model.init = start.string();
    parts.fresh = true;
    const hone::test::StopFlag stop{true};
    parts.stop = stop;
    EXPECT_THROW(train_vision(parts), Error);
    fs::remove_all(start);  // the checkpoint knows which layers are factored
    parts.fresh = false;
    parts.resume = true;
    EXPECT_THROW(train_vision(parts), Error) << "so does the next one";
    parts.stop = {};
    const TrainVisionResult result = train_vision(parts);
    EXPECT_EQ(result.val_loss, expected.val_loss) << name;
    for (const char* file : {"model.safetensors", "config.json"}) {
      EXPECT_TRUE(read_text_file(result.model / file) == read_text_file(expected.model / file))
          << name << ' ' << file;
    }
  }
}

}  // namespace
}  // namespace hone::app
