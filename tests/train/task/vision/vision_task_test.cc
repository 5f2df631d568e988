// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/vision_task.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/log.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/task/vision/vision_setup.h"
#include "hone/train/trainer/memory_parts.h"
#include "hone/train/trainer/probe_step.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

using testing::HasSubstr;

class Vision : public testing::Test {
 protected:
  Vision() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(folder_.path(), 12, 4, 200, 40);
    config_.data.path = folder_.path().string();
    config_.trainer.micro_batch = 16;
    config_.data.validation_images = 20;
    config_.model.width = 8;
  }
  VisionConfig with(std::initializer_list<const char*> settings) const {
    VisionConfig config = config_;
    for (const char* setting : settings) set_config(config, setting);
    check_config(config);
    return config;
  }

  test::TemporaryFolder folder_;
  VisionConfig config_;
};

// Loss of the first and of the last of `steps` steps.
std::pair<double, double> learn(const VisionConfig& config, int steps) {
  const VisionSetup setup = set_up_vision(config);
  const auto optimizer = make_optimizer(config, setup);
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const trainer::LossSum loss = setup.task->micro_batch(step, 0);
    (loss.sum / loss.weight).backward();
    optimizer->step_with({});
    last = loss.sum.item<double>() / loss.weight;
    if (step == 0) first = last;
  }
  return {first, last};
}

TEST_F(Vision, every_model_learns_with_every_rule_at_its_own_rate) {
  for (const char* model : {"model.name=mlp", "model.name=cnn", "model.name=resnet20"}) {
    for (const optim::RuleDefaults& rule : vision_rules()) {
      VisionConfig config = with({model});
      if (std::string(model) != "model.name=cnn" && rule.name != "adamw") continue;
      config.optim.name = rule.name;
      const auto [first, last] = learn(config, 20);
      EXPECT_LT(last, 0.9 * first) << model << ' ' << rule.name;
    }
  }
}

TEST_F(Vision, batch_norm_needs_two_images) {
  EXPECT_NO_THROW(set_up_vision(with({"model.name=cnn", "trainer.micro_batch=1"})));
  EXPECT_THAT(test::error_of([&] {
                set_up_vision(with({"model.name=resnet18", "trainer.micro_batch=1"}));
              }),
              HasSubstr("[trainer.micro_batch] expected at least 2"));
}

TEST_F(Vision, starts_from_the_weights_of_a_file_and_says_what_it_left_out) {
  const VisionSetup first = set_up_vision(with({"model.name=resnet20", "trainer.seed=7"}));
  const auto folder = folder_.path() / "model";
  write_vision_model(folder, {first.model, first.data->corpus.classes, first.data->stats});
  set_log_level(LogLevel::Info);
  const auto start = [&](const char* name) {
    testing::internal::CaptureStderr();
    VisionConfig config = with({name, "trainer.seed=8"});
    config.model.init = folder.string();
    VisionSetup setup = set_up_vision(config);
    return std::pair(std::move(setup), testing::internal::GetCapturedStderr());
  };
  const auto [same, log] = start("model.name=resnet20");
  EXPECT_THAT(log, HasSubstr("model.safetensors loaded\n"));
  const auto expected = first.model->named_parameters();
  for (const auto& item : same.model->named_parameters()) {
    EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
  }
  const auto [deeper, deeper_log] = start("model.name=resnet56");
  EXPECT_THAT(deeper_log, HasSubstr("missing: layer1.3.conv1.weight"));
  EXPECT_EQ(std::ranges::count(deeper_log, '\n'), std::ranges::count(log, '\n'));
  const char* const weight = "layer1.2.conv2.layer.weight";  // in its Slot
  EXPECT_TRUE(deeper.model->named_parameters()[weight].equal(expected[weight]));
  EXPECT_THAT(test::error_of([&] { start("model.name=mlp"); }), HasSubstr("No tensor fits"));
  testing::internal::GetCapturedStderr();
}

TEST_F(Vision, looks_for_weights_to_start_from_before_it_loads_images) {
  VisionConfig config = with({"data.path=/nonexistent/images"});
  const std::string message = test::error_of([&] { set_up_vision(config); });
  EXPECT_THAT(message, HasSubstr("images"));
  for (const auto& init : {folder_.path() / "absent.safetensors", folder_.path()}) {
    config.model.init = init.string();
    EXPECT_THAT(test::error_of([&] { set_up_vision(config); }), HasSubstr(init.string()));
  }
}

TEST_F(Vision, takes_no_image_twice_into_a_batch) {
  set_log_level(LogLevel::Warning);
  testing::internal::CaptureStderr();
  const VisionSetup setup = set_up_vision(with({"trainer.micro_batch=4096"}));
  const Index images = setup.data->corpus.train.size();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(concat("batches are of ", images)));
  EXPECT_EQ(setup.task->micro_batch(0, 0).weight, static_cast<double>(images));
}

TEST_F(Vision, validates_on_a_part_or_on_all_without_moving_anything) {
  for (const char* model : {"model.name=cnn", "model.name=resnet20"}) {
    const VisionSetup setup = set_up_vision(with({model}));
    std::vector<torch::Tensor> before;
    for (const trainer::CheckpointTensor& weight : setup.task->weights()) {
      before.push_back(weight.value.detach().clone());
    }
    const torch::NoGradGuard no_grad;
    const trainer::Validation part = setup.task->validate(false, {}),
                              all = setup.task->validate(true, {});
    EXPECT_NE(part.loss, all.loss);
    EXPECT_EQ(setup.task->validate(true, {}).loss, all.loss);
    EXPECT_GE(*all.accuracy, 0);
    EXPECT_LE(*all.accuracy, 1);
    EXPECT_EQ(*all.accuracy * 40, std::round(*all.accuracy * 40)) << "40 held-out images";
    EXPECT_TRUE(setup.model->is_training());
    Index named = -1;
    const auto name = [&](Index images, Index of) {
      EXPECT_EQ(of, 40);
      EXPECT_GT(images, named);
      named = images;
    };
    setup.task->validate(true, name);
    EXPECT_EQ(named, 40);
    const auto stop = [](Index, Index) { throw Error(ErrorCategory::Cancelled, "stop"); };
    EXPECT_THROW(setup.task->validate(true, stop), Error);
    EXPECT_TRUE(setup.model->is_training());
    ASSERT_TRUE(setup.task->halve_validation_batches());
    EXPECT_NEAR(setup.task->validate(true, {}).loss, all.loss, 1e-5);
    std::size_t i = 0;
    for (const trainer::CheckpointTensor& weight : setup.task->weights()) {
      EXPECT_TRUE(weight.value.equal(before[i++])) << weight.name;
    }
  }
}

TEST_F(Vision, results_do_not_depend_on_workers_or_memory) {
  std::vector<std::pair<double, double>> results;
  for (const char* workers : {"data.workers=0", "data.workers=1", "data.workers=3"}) {
    results.push_back(learn(
        with({workers, "augment.flip=0.5", "augment.crop=random", "augment.crop_padding=1"}), 8));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_NE(learn(with({"augment.flip=0.5"}), 8), results[0]);
  EXPECT_NE(learn(with({"augment.crop=random", "augment.crop_padding=1"}), 8), results[0]);
  EXPECT_NE(learn(with({"augment.flip=0.5", "augment.crop=random", "augment.crop_padding=1",
                        "trainer.seed=2"}),
                  8),
            results[0]);
}

TEST_F(Vision, micro_batches_add_up_to_the_same_gradient_unless_the_batch_mixes) {
  const auto gradient = [&](bool halved) {
    const VisionSetup setup = set_up_vision(with({"model.name=cnn"}));
    const Index micro_batches = halved ? setup.task->halve_micro_batches() : 1;
    for (Index micro = 0; micro < micro_batches; ++micro)
      setup.task->micro_batch(3, micro).sum.backward();
    return setup.model->parameters()[0].grad().clone();
  };
  EXPECT_TRUE(gradient(false).allclose(gradient(true), 1e-4, 1e-5));
  EXPECT_EQ(set_up_vision(with({"model.name=resnet20"})).task->halve_micro_batches(), 0);
}

TEST_F(Vision, a_step_that_is_skipped_leaves_running_means_as_they_were) {
  const VisionSetup setup = set_up_vision(with({"model.name=resnet20"}));
  std::vector<torch::Tensor> before;
  setup.task->micro_batch(0, 0);
  for (const torch::Tensor& buffer : setup.model->buffers()) before.push_back(buffer.clone());
  setup.task->micro_batch(1, 0);
  EXPECT_FALSE(setup.model->buffers()[0].equal(before[0]));
  setup.task->restore_buffers();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(setup.model->buffers()[i].equal(before[i])) << i;
  }
}

TEST_F(Vision, a_step_that_is_skipped_or_tried_again_moves_prototypes_once) {
  for (const char* kind : {"full", "diagonal", "off"}) {
    const VisionSetup setup = set_up_vision(
        with({"model.name=resnet20", "loss.method=paco", "trainer.micro_batch=2",
              "trainer.accumulation_steps=2", concat("paco.prototype=", kind).c_str()}));
    const auto buffers_after = [&](Index step) {
      for (const Index micro : {0, 1}) setup.task->micro_batch(step, micro);
      std::map<std::string, torch::Tensor> out;
      for (const auto& item : setup.task->objective().module().named_buffers()) {
        out.emplace(item.key(), item.value().clone());
      }
      return out;
    };
    const auto expect_equal = [&](const std::map<std::string, torch::Tensor>& want) {
      for (const auto& item : setup.task->objective().module().named_buffers()) {
        EXPECT_TRUE(item.value().equal(want.at(item.key()))) << kind << ' ' << item.key();
      }
    };
    const auto before = buffers_after(0), once = buffers_after(1);
    for (const char* name : {"loss.prototype", "loss.prototype_count"}) {
      EXPECT_EQ(once.at(name).equal(before.at(name)), kind == std::string("off")) << name;
    }
    buffers_after(1);
    expect_equal(once);
    setup.task->restore_buffers();
    expect_equal(before);
  }
}

TEST_F(Vision, a_step_that_is_tried_again_moves_running_means_once) {
  const VisionSetup setup = set_up_vision(with({"model.name=resnet20"}));
  const torch::Tensor mean = setup.model->named_buffers()["bn1.running_mean"];
  setup.task->micro_batch(0, 0);
  const torch::Tensor once = mean.clone();
  setup.task->micro_batch(0, 0);
  EXPECT_TRUE(mean.equal(once));
  setup.task->micro_batch(1, 0);
  EXPECT_FALSE(mean.equal(once));
}

TEST_F(Vision, a_memory_report_leaves_weights_and_running_means_alone) {
  const VisionConfig config = with({"model.name=resnet20"});
  const VisionSetup setup = set_up_vision(config);
  const auto optimizer = make_optimizer(config, setup);
  std::vector<torch::Tensor> before;
  for (const auto& weight : setup.task->weights()) before.push_back(weight.value.detach().clone());
  const trainer::MemoryParts parts = trainer::measure_memory(
      *setup.task, *optimizer, trainer::replicate(setup.task->largest_sample(), 16), {});
  EXPECT_GT(parts.activations, parts.weights / 10);
  std::size_t i = 0;
  for (const auto& weight : setup.task->weights()) {
    EXPECT_TRUE(weight.value.equal(before[i++])) << weight.name;
  }
}

TEST_F(Vision, writes_a_model_with_names_classes_and_statistics) {
  const VisionSetup setup = set_up_vision(with({"model.name=resnet20", "loss.on_collapse=off"}));
  const auto folder = folder_.path() / "model";
  write_vision_model(folder, {setup.model, setup.data->corpus.classes, setup.data->stats});
  const Json json = read_json_file(folder / "config.json");
  EXPECT_EQ(json.at("model"), "resnet20");
  EXPECT_EQ(json.at("width"), 8);
  EXPECT_EQ(json.at("classes").dump(), R"(["0","1","2","3"])");
  EXPECT_EQ(json.at("mean").size(), 1u);
  const MmapFile file(folder / "model.safetensors");
  std::map<std::string, torch::Tensor> want;
  for (const auto& weight : setup.task->weights()) want.emplace(weight.name, weight.value);
  const SafetensorsFile stored = parse_safetensors(file.bytes(), "model");
  EXPECT_EQ(stored.tensors.size(), want.size());
  for (const SafetensorsTensor& tensor : stored.tensors) {
    ASSERT_TRUE(want.contains(tensor.name)) << tensor.name;
    const torch::Tensor value = want[tensor.name].detach().contiguous();
    ASSERT_EQ(tensor.bytes.size(), value.nbytes());
    EXPECT_EQ(std::memcmp(tensor.bytes.data(), value.data_ptr(), value.nbytes()), 0) << tensor.name;
  }
}

TEST_F(Vision, cuts_a_square_for_training_and_evaluation_that_the_model_remembers) {
  const VisionConfig config = with({"augment.side=8", "augment.crop=random"});
  const VisionSetup setup = set_up_vision(config);
  EXPECT_EQ(setup.task->largest_sample()[0].sizes(), (std::vector<std::int64_t>{1, 1, 8, 8}));
  EXPECT_TRUE(std::isfinite(setup.task->validate(true, {}).loss));
  EXPECT_NE(learn(config, 4), learn(with({"augment.side=8"}), 4));
  const auto folder = folder_.path() / "model";
  write_vision_model(folder, {.net = setup.model,
                              .classes = setup.data->corpus.classes,
                              .stats = setup.data->stats,
                              .image_side = 12});
  const VisionModel model = read_vision_model(folder);
  EXPECT_EQ(model.image_shape(), (data::ImageShape{1, 12, 12}));
  EXPECT_EQ(model.cut().side, 8);
  Json json = read_json_file(folder / "config.json");
  json["image_side"] = 7;
  write_json_file(folder / "config.json", json);
  EXPECT_THROW(read_vision_model(folder), Error);
  json.erase("image_side");
  write_json_file(folder / "config.json", json);
  EXPECT_EQ(read_vision_model(folder).image_shape(), (data::ImageShape{1, 8, 8}));
  try {
    set_up_vision(with({"augment.side=13"}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[augment.side] expected 0, or at most 12"));
  }
}

TEST_F(Vision, draws_leaves_where_told) {
  const VisionConfig config =
      with({"data.path=leaves", "data.leaves.classes=3", "data.leaves.size=32",
            "data.leaves.train=6", "data.leaves.val=2", "augment.ops=2", "augment.shuffle=0.5"});
  const VisionSetup setup = set_up_vision(config);
  EXPECT_EQ(setup.data->corpus.classes.size(), 3u);
  EXPECT_EQ(setup.data->corpus.train.size(), 18);
  EXPECT_EQ(setup.task->largest_sample()[0].sizes(), (std::vector<std::int64_t>{1, 3, 32, 32}));
  EXPECT_TRUE(std::isfinite(setup.task->validate(true, {}).loss));
  EXPECT_EQ(learn(config, 3), learn(config, 3));
}

TEST(VisionNet, shapes_follow_the_image_and_seeds_the_weights) {
  for (const char* name : {"mlp", "cnn", "resnet20", "resnet18"}) {
    for (const auto& [height, width] : {std::pair<Index, Index>{28, 28}, {64, 64}, {33, 17}}) {
      const nn::VisionSpec spec{.name = name,
                                .width = 8,
                                .channels = 3,
                                .height = height,
                                .image_width = width,
                                .classes = 5};
      nn::VisionNet net = nn::make_vision_net(spec, 1), same = nn::make_vision_net(spec, 1),
                    other = nn::make_vision_net(spec, 2);
      const torch::Tensor images = at::ones({3, 3, height, width});
      net->eval(), same->eval(), other->eval();
      EXPECT_EQ(net->forward(images).size(1), 5);
      EXPECT_TRUE(net->forward(images).equal(same->forward(images)));
      EXPECT_FALSE(net->forward(images).equal(other->forward(images)));
      EXPECT_THROW(net->forward(at::ones({3, 1, height, width})), Error);
    }
  }
}

TEST(VisionNet, refuses_sizes_that_do_not_fit) {
  const auto message = [](nn::VisionSpec spec) {
    try {
      nn::resolve(std::move(spec));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message({.name = "vit"}), HasSubstr("resnet50 or resnet56, got vit"));
  EXPECT_THAT(message({.name = "cnn", .width = 12}), HasSubstr("a multiple of 8"));
  EXPECT_THAT(message({.name = "cnn", .height = 3}), HasSubstr("at least 4 pixels"));
  EXPECT_THAT(message({.classes = 1}), HasSubstr("two classes"));
  EXPECT_THAT(message({.name = "cnn", .classes = 0}), HasSubstr("two classes"));
  EXPECT_EQ(message({.name = "mlp"}), "");
}

// A map of resnet18 and resnet50 has 64 channels on a quarter of the pixels, or 256 on a sixteenth.
TEST(VisionNet, refuses_images_whose_maps_would_take_gigabytes) {
  const auto message = [](const char* name, Index width, Index side) {
    return test::error_of(
        [&] { nn::resolve({.name = name, .width = width, .height = side, .image_width = side}); });
  };
  EXPECT_THAT(message("resnet20", 16, 4096),
              HasSubstr("expected images of at most 4194304 pixels for resnet20 of width 16, got "
                        "4096 x 4096"));
  for (const char* name : {"resnet18", "resnet34", "resnet50"}) {
    EXPECT_EQ(message(name, 0, 2048), "no error");
    EXPECT_THAT(message(name, 0, 2049), HasSubstr("at most 4194304 pixels")) << name;
  }
  EXPECT_EQ(message("cnn", 32, 1448), "no error") << "1448 is the root of 2097152, rounded down";
  EXPECT_THAT(message("cnn", 32, 1449), HasSubstr("at most 2097152 pixels"));
  EXPECT_THAT(message("resnet56", 1 << 16, 64), HasSubstr("at most 1024 pixels"));
  EXPECT_THAT(message("cnn", 8, std::numeric_limits<Index>::max()), HasSubstr("got 9223372036"));
  EXPECT_EQ(message("mlp", 8, 4096), "no error") << "its weights are of the image's size";
}

TEST(VisionConfig, refuses_values_by_key) {
  for (const char* bad :
       {"model.name=vit", "model.width=-1", "model.layers=65", "data.image_size=-1",
        "augment.crop_padding=-1", "augment.crop=left", "augment.flip=1.5", "data.leaves.classes=1",
        "data.validation_images=0", "data.memory_mb=-1", "data.workers=300", "data.prefetch=0",
        "optim.name=lbfgs", "trainer.steps=0"}) {
    VisionConfig config;
    config.data.path = "x";
    set_config(config, bad);
    std::string message;
    try {
      check_config(config);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr(std::string(bad, std::string(bad).find('=')))) << bad;
  }
  EXPECT_THROW(check_config(VisionConfig()), Error) << "no data";
}

TEST(VisionConfig, refuses_a_cut_that_is_too_small_for_the_model) {
  const auto message = [](const char* model, Index side) {
    VisionConfig config;
    config.data.path = "x";
    config.model.name = model;
    config.augment.side = side;
    return test::error_of([&] { check_config(config); });
  };
  EXPECT_THAT(message("cnn", 1), HasSubstr("[augment.side] expected 0, or at least 4 for cnn"));
  EXPECT_THAT(message("resnet18", 3), HasSubstr("[augment.side] expected 0, or at least 4"));
  EXPECT_EQ(message("cnn", 4), "no error");
  EXPECT_EQ(message("mlp", 1), "no error");
}

TEST(VisionConfig, lr_follows_the_rule_and_every_rule_has_one) {
  for (const optim::RuleDefaults& rule : vision_rules()) {
    VisionConfig config;
    config.optim.name = rule.name;
    EXPECT_EQ(peak_of(config), rule.peak);
    EXPECT_GT(rule.peak, 0);
    config.lr.peak = 0.5;
    EXPECT_EQ(peak_of(config), 0.5);
  }
}

}  // namespace
}  // namespace hone::task
