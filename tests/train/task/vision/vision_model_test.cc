// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/vision_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hone/core/file/json_io.h"
#include "hone/data/leaves/leaves.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

using testing::HasSubstr;
using Stage = nn::ResNetImpl::Stage;

const data::LeavesOptions kLeaves{.classes = 5,
                                  .size = 40,
                                  .train = 7,
                                  .val = 3,
                                  .test = 0,
                                  .difficulty = 0.25,
                                  .seed = 1'234'567'890'123};

class VisionModelFolder : public testing::Test {
 protected:
  // A model of leaves of 40 x 40, whose maps have 10 x 10 and 20 x 20 cells.
  VisionModel leaf_model(const char* name = "resnet20") const {
    const nn::VisionSpec spec{.name = name,
                              .width = 8,
                              .layers = 1,
                              .channels = 3,
                              .height = 40,
                              .image_width = 40,
                              .classes = 5};
    return {.net = nn::make_vision_net(spec, /*seed=*/1),
            .classes = data::leaf_class_names(5),
            .stats = {{0.1, 0.2, 0.3}, {0.5, 0.6, 0.7}},
            .leaves = kLeaves,
            .parts = PartSpec{.stage = Stage::Penultimate,
                              .sampler = {.parts = 3,
                                          .window = 4,
                                          .saliency = paco::Saliency::Norm,
                                          .suppression = paco::Suppression::Fraction,
                                          .fraction = 0.125,
                                          .allow_repeats = true}}};
  }
  // What reading says of the folder whose config.json has another value at a path; null removes it.
  std::string refusal(const std::string& pointer, const Json& value) const {
    const auto path = folder() / "config.json";
    const Json before = read_json_file(path);
    Json changed = before;
    changed[Json::json_pointer(pointer)] = value;
    write_json_file(path, changed);
    const std::string message = test::error_of([&] { read_vision_model(folder()); });
    write_json_file(path, before);
    return message;
  }
  std::filesystem::path folder() const { return folder_.path() / "model"; }

  test::TemporaryFolder folder_;
};

TEST_F(VisionModelFolder, keeps_leaves_and_parts) {
  write_vision_model(folder(), leaf_model());
  const VisionModel model = read_vision_model(folder());
  ASSERT_TRUE(model.leaves && model.parts);
  EXPECT_EQ(model.leaves->classes, kLeaves.classes);
  EXPECT_EQ(model.leaves->size, kLeaves.size);
  EXPECT_EQ(model.leaves->train, kLeaves.train);
  EXPECT_EQ(model.leaves->val, kLeaves.val);
  EXPECT_EQ(model.leaves->test, kLeaves.test);
  EXPECT_EQ(model.leaves->difficulty, kLeaves.difficulty);
  EXPECT_EQ(model.leaves->seed, kLeaves.seed);
  EXPECT_EQ(model.parts->stage, Stage::Penultimate);
  EXPECT_EQ(model.parts->sampler.parts, 3);
  EXPECT_EQ(model.parts->sampler.window, 4);
  EXPECT_EQ(model.parts->sampler.saliency, paco::Saliency::Norm);
  EXPECT_EQ(model.parts->sampler.suppression, paco::Suppression::Fraction);
  EXPECT_EQ(model.parts->sampler.fraction, 0.125);
  EXPECT_TRUE(model.parts->sampler.allow_repeats);
}

TEST_F(VisionModelFolder, names_the_other_choices_too) {
  VisionModel model = leaf_model();
  model.parts = PartSpec{};
  write_vision_model(folder(), model);
  const Json parts = read_json_file(folder() / "config.json").at("parts");
  EXPECT_EQ(parts.at("stage"), "last");
  EXPECT_EQ(parts.at("saliency"), "attention");
  EXPECT_EQ(parts.at("suppression"), "window");
  const VisionModel read = read_vision_model(folder());
  EXPECT_EQ(read.parts->stage, Stage::Last);
  EXPECT_EQ(read.parts->sampler.saliency, paco::Saliency::Attention);
  EXPECT_EQ(read.parts->sampler.suppression, paco::Suppression::Window);
  EXPECT_FALSE(read.parts->sampler.allow_repeats);
}

TEST_F(VisionModelFolder, has_neither_without_them) {
  VisionModel model = leaf_model("mlp");
  model.leaves.reset();
  model.parts.reset();
  write_vision_model(folder(), model);
  const Json config = read_json_file(folder() / "config.json");
  EXPECT_FALSE(config.contains("leaves") || config.contains("parts"));
  const VisionModel read = read_vision_model(folder());
  EXPECT_FALSE(read.leaves || read.parts);
}

TEST_F(VisionModelFolder, refuses_leaves_that_do_not_fit_the_model) {
  write_vision_model(folder(), leaf_model());
  EXPECT_EQ(refusal("/leaves", Json()), "no error") << "null is absent";
  EXPECT_THAT(refusal("/leaves", "yes"), HasSubstr("leaves] expected a JSON object"));
  EXPECT_THAT(refusal("/leaves", Json::object()), HasSubstr("The key classes is missing"));
  EXPECT_THAT(refusal("/leaves/classes", 6), HasSubstr("for leaves, got 6 classes"));
  EXPECT_THAT(refusal("/leaves/size", 41), HasSubstr("41 pixels"));
  EXPECT_THAT(refusal("/leaves/size", 1), HasSubstr("data.leaves.size"));
  EXPECT_THAT(refusal("/leaves/train", 0), HasSubstr("data.leaves.train"));
  EXPECT_THAT(refusal("/leaves/val", std::int64_t{1} << 62), HasSubstr("data.leaves.val"));
  EXPECT_THAT(refusal("/leaves/difficulty", 1.5), HasSubstr("data.leaves.difficulty"));
  EXPECT_THAT(refusal("/leaves/difficulty", "hard"), HasSubstr("a number for difficulty"));
  EXPECT_THAT(refusal("/leaves/seed", -1), HasSubstr("data.leaves.seed"));
}

TEST_F(VisionModelFolder, refuses_parts_that_a_sampler_does_not_take) {
  write_vision_model(folder(), leaf_model());
  EXPECT_THAT(refusal("/parts", Json::array()), HasSubstr("parts] expected a JSON object"));
  EXPECT_THAT(refusal("/parts/stage", "first"), HasSubstr("last or penultimate for stage"));
  EXPECT_THAT(refusal("/parts/stage", 1), HasSubstr("a string for stage"));
  EXPECT_THAT(refusal("/parts/stage", Json()), HasSubstr("for stage, got ''"));
  EXPECT_THAT(refusal("/parts/count", 0), HasSubstr("1 to 400 for count"));
  EXPECT_THAT(refusal("/parts/count", 2.5), HasSubstr("a whole number for count"));
  EXPECT_THAT(refusal("/parts/count", Json()), HasSubstr("The key count is missing"));
  EXPECT_THAT(refusal("/parts/window", 0), HasSubstr("for window, got 0"));
  EXPECT_THAT(refusal("/parts/window", std::int64_t{1} << 40), HasSubstr("for window"));
  EXPECT_THAT(refusal("/parts/saliency", "loud"), HasSubstr("attention or norm for saliency"));
  EXPECT_THAT(refusal("/parts/suppression", "none"), HasSubstr("window or fraction"));
  EXPECT_THAT(refusal("/parts/fraction", 1.01), HasSubstr("0 to 1 for fraction"));
  EXPECT_THAT(refusal("/parts/fraction", -0.1), HasSubstr("0 to 1 for fraction"));
  EXPECT_THAT(refusal("/parts/fraction", Json()), HasSubstr("The key fraction is missing"));
  EXPECT_THAT(refusal("/parts/repeats", 1), HasSubstr("for repeats, got"));
  EXPECT_EQ(refusal("/parts/repeats", Json()), "no error") << "of models written before it was";
}

TEST_F(VisionModelFolder, refuses_parts_of_what_is_no_resnet) {
  VisionModel model = leaf_model("mlp");
  write_vision_model(folder(), model);
  EXPECT_THAT(test::error_of([&] { read_vision_model(folder()); }), HasSubstr("ResNet"));
}

// Weights of a ResNet fit images of any size.
TEST_F(VisionModelFolder, refuses_a_side_that_would_take_gigabytes) {
  VisionModel model = leaf_model();
  model.leaves.reset();
  write_vision_model(folder(), model);
  Json config = read_json_file(folder() / "config.json");
  const auto with_side = [&](Index side) {
    config["height"] = config["image_width"] = side;
    return refusal("", config);
  };
  EXPECT_EQ(with_side(2048), "no error");
  EXPECT_THAT(with_side(4096), AllOf(HasSubstr((folder() / "config.json").string()),
                                     HasSubstr("at most 8388608 pixels for resnet20 of width 8"),
                                     HasSubstr("got 4096 x 4096")));
  EXPECT_THAT(with_side(4097), HasSubstr("1 to 4096 for height"));
}

TEST_F(VisionModelFolder, refuses_more_parts_than_a_search_should_take) {
  VisionModel model = leaf_model();
  model.leaves.reset();
  model.net = nn::make_vision_net({.name = "resnet20",
                                   .width = 8,
                                   .channels = 3,
                                   .height = 200,
                                   .image_width = 200,
                                   .classes = 5},
                                  /*seed=*/1);
  write_vision_model(folder(), model);
  EXPECT_EQ(refusal("/parts/count", 1024), "no error");
  EXPECT_THAT(refusal("/parts/count", 1025), HasSubstr("1 to 1024 for count"));
}

TEST_F(VisionModelFolder, refuses_a_class_that_is_there_twice) {
  write_vision_model(folder(), leaf_model());
  const std::string first = data::leaf_class_names(5).front();
  EXPECT_THAT(refusal("/classes/3", first),
              HasSubstr("different names for classes, got '" + first + "' twice"));
}

TEST_F(VisionModelFolder, says_where_the_model_of_a_run_is) {
  write_vision_model(folder(), leaf_model());
  EXPECT_THAT(test::error_of([&] { read_vision_model(folder_.path()); }),
              HasSubstr("got a run, whose model is in its folder model/"));
}

// The map itself says how many cells it has.
TEST_F(VisionModelFolder, allows_as_many_parts_as_the_map_has_cells) {
  for (const char* name : {"resnet20", "resnet18", "resnet50"}) {
    for (const Stage stage : {Stage::Last, Stage::Penultimate}) {
      VisionModel model{.net = nn::make_vision_net({.name = name,
                                                    .width = 8,
                                                    .channels = 3,
                                                    .height = 45,
                                                    .image_width = 45,
                                                    .classes = 2},
                                                   /*seed=*/1),
                        .classes = {"a", "b"},
                        .stats = {{0, 0, 0}, {1, 1, 1}},
                        .parts = PartSpec{.stage = stage, .sampler = {}}};
      auto& net = dynamic_cast<nn::ResNetImpl&>(*model.net);
      const torch::Tensor map = net.forward_features(at::zeros({2, 3, 45, 45}), stage);
      model.parts->sampler.parts = map.size(2) * map.size(3);
      write_vision_model(folder(), model);
      EXPECT_EQ(refusal("/parts/window", 1), "no error") << name;
      EXPECT_THAT(refusal("/parts/count", map.size(2) * map.size(3) + 1), HasSubstr("for count"))
          << name;
    }
  }
}

}  // namespace
}  // namespace hone::task
