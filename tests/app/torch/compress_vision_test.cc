// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/compress_vision.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/app/inspect.h"
#include "hone/app/torch/eval_vision.h"
#include "hone/app/torch/train_vision.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/measure/measure.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A model of 12 x 12 pictures of a bar in one of four rows, trained for a moment.
class CompressVision : public testing::Test {
 protected:
  CompressVision() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(data_, 12, 4, 200, 40);
  }
  TrainVisionJob job_of(const char* model, const char* out) const {
    TrainVisionJob job;
    job.config.model = {.name = model, .width = 16};
    job.config.data.path = data_;
    job.config.lr.warm_up_steps = 2;
    job.config.trainer.steps = 30;
    job.config.trainer.micro_batch = 20;
    job.config.trainer.checkpoint_every = 10;
    job.out = folder_.path() / out;
    job.threads = 1;
    return job;
  }
  fs::path train(const char* model) const { return train_vision(job_of(model, "run")).model; }
  CompressVisionResult compress(const fs::path& model, std::vector<std::string> prune,
                                std::vector<std::string> quantize, bool has_data = true) const {
    const auto measurer = measure::make_measurer();
    CompressVisionOptions options;
    options.model = model;
    options.out = out_;
    options.prune = std::move(prune);
    options.quantize = std::move(quantize);
    if (has_data) options.data = data_;
    options.calibration_images = 100;
    options.threads = 1;
    return compress_vision(options, *measurer);
  }
  double accuracy_of(const fs::path& model) const {
    VisionEvalOptions options;
    options.model = model;
    options.data = data_;
    options.threads = 1;
    return evaluate_vision(options).accuracy;
  }
  static Index size_of(const fs::path& model) {
    return static_cast<Index>(fs::file_size(model / "model.safetensors"));
  }
  static Index zeros_in(const fs::path& model) {
    Index zeros = 0;
    const task::VisionModel read = task::read_vision_model(model);
    for (const auto& [name, value] : nn::parameters_by_path(*read.net)) {
      if (value.dim() > 1) zeros += value.numel() - at::count_nonzero(value).item<Index>();
    }
    return zeros;
  }

  test::TemporaryFolder folder_;
  std::string data_ = (folder_.path() / "data").string();
  fs::path out_ = folder_.path() / "small";
};

TEST_F(CompressVision, writes_a_smaller_folder_and_measures_it) {
  const fs::path model = train("resnet20");
  const std::string before = read_text_file(model / "model.safetensors");
  const CompressVisionResult result = compress(model, {}, {"int8:row", "^conv1$=float"});
  ASSERT_TRUE(result.written);
  EXPECT_EQ(read_text_file(model / "model.safetensors"), before);
  EXPECT_EQ(result.document["bytes_before"], size_of(model));
  EXPECT_EQ(result.document["bytes_after"], size_of(out_));
  EXPECT_LT(size_of(out_), size_of(model) * 2 / 5);
  const Json& quality = result.document["quality"];
  EXPECT_EQ(quality["images"], 40);
  EXPECT_EQ(quality["accuracy_before"].get<double>(), accuracy_of(model));
  EXPECT_EQ(quality["accuracy_after"].get<double>(), accuracy_of(out_));
  EXPECT_GE(quality["agreement"].get<double>(), 0.9);
  EXPECT_EQ(result.document["quantize"]["layers"][0]["status"], "skipped");
  EXPECT_THAT(to_table(result), HasSubstr("same class"));
  EXPECT_EQ(inspect_file({.file = out_})["parameters"],
            inspect_file({.file = model})["parameters"]);
}

TEST_F(CompressVision, calibrates_with_training_images) {
  const fs::path model = train("cnn");
  const CompressVisionResult result = compress(model, {}, {"int4:g16:gptq"});
  EXPECT_EQ(result.document["quantize"]["layers"][1]["algorithm"], "gptq");
  EXPECT_THAT(test::error_of([&] { compress(model, {}, {"int4:g16:gptq"}, false); }),
              HasSubstr("calibration"));
}

TEST_F(CompressVision, prunes_fine_tunes_and_keeps_the_zeros) {
  const fs::path model = train("resnet20");
  for (const char* method : {"gradient:0.5", "magnitude:0.5:global"}) {
    const CompressVisionResult pruned = compress(model, {method}, {});
    const Json& step = pruned.document["prune"][0];
    EXPECT_NEAR(step["actual_sparsity"].get<double>(), 0.5, 1e-4) << method;
    EXPECT_LT(size_of(out_), size_of(model) * 3 / 5) << method;
    const Index zeros = zeros_in(out_);
    EXPECT_EQ(zeros, step["original_params"].get<Index>() - step["remaining_params"].get<Index>());
    TrainVisionJob job = job_of("resnet20", "tuned");
    job.fresh = true;
    job.config.model.init = out_.string();
    job.config.optim.weight_decay = 0.1;
    job.config.trainer.keep_zeros = true;
    const fs::path tuned = train_vision(job).model;
    EXPECT_EQ(zeros_in(tuned), zeros) << method;
    job.config.trainer.keep_zeros = false;
    EXPECT_LT(zeros_in(train_vision(job).model), zeros / 100) << "without the key";
  }
}

TEST_F(CompressVision, continues_to_train_a_resnet_with_fewer_channels) {
  const fs::path model = train("resnet20");
  compress(model, {"channels:0.5:gradient"}, {});
  EXPECT_LT(size_of(out_), size_of(model) * 7 / 10);
  TrainVisionJob job = job_of("resnet20", "tuned");
  job.config.model.init = out_.string();
  job.config.lr.schedule = "constant";
  const auto widths = [](const fs::path& folder) {
    return task::read_vision_model(folder).net->spec().inner_widths;
  };
  const fs::path tuned = train_vision(job).model;
  EXPECT_EQ(widths(tuned), widths(out_));
  job.resume = true;
  job.config.trainer.steps = 40;
  EXPECT_EQ(widths(train_vision(job).model), widths(out_)) << "resumed without model.init";
}

TEST_F(CompressVision, trains_on_from_quantized_weights) {
  const fs::path model = train("resnet20");
  compress(model, {}, {"int8:row"});
  TrainVisionJob job = job_of("resnet20", "tuned");
  job.config.model.init = out_.string();
  job.config.lr.peak = 1e-12;
  job.config.trainer.steps = 1;
  const task::VisionModel tuned = task::read_vision_model(train_vision(job).model);
  const task::VisionModel original = task::read_vision_model(model);
  const auto weights = nn::parameters_by_path(*original.net);
  const auto got = nn::parameters_by_path(*tuned.net);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor error = (got[i].value - weights[i].value).norm();
    EXPECT_LT(error.item<double>(), 0.02 * weights[i].value.norm().item<double>() + 1e-6)
        << weights[i].name;
  }
}

TEST_F(CompressVision, refuses_what_it_cannot_do) {
  const fs::path model = train("cnn");
  const auto refusal = [&](std::vector<std::string> prune, std::vector<std::string> quantize,
                           bool has_data = true) {
    return test::error_of(
        [&] { compress(model, std::move(prune), std::move(quantize), has_data); });
  };
  EXPECT_THAT(refusal({}, {}), HasSubstr("--prune or --quantize"));
  EXPECT_THAT(refusal({"gradient:0.5"}, {}, false), HasSubstr("--data"));
  EXPECT_THAT(refusal({"channels:0.5"}, {}), HasSubstr("ResNet"));
  for (const char* text : {"magnitude", "magnitude:1.5", "magnitude:x", "wanda:0.5",
                           "magnitude:0.5:gradient", "channels:0.5:global", "gradient:0.5:0"}) {
    EXPECT_THAT(refusal({text}, {}), HasSubstr("--prune")) << text;
  }
  EXPECT_THAT(refusal({}, {"int8:row", "int4:g32"}), HasSubstr("one format"));
  EXPECT_THAT(refusal({}, {"int9"}), HasSubstr("int9"));
  EXPECT_THAT(refusal({}, {"nowhere=int8:row"}), HasSubstr("nowhere"));
  EXPECT_FALSE(fs::exists(out_));
}

}  // namespace
}  // namespace hone::app
