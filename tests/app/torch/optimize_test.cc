// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/optimize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/train/compress/quantizable.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"
#include "tests/train/scripted_measurer.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Optimize : public testing::Test {
 protected:
  Optimize() {
    set_log_level(LogLevel::Error);
    for (const char* name : {"fused", "packed", "after"}) faster_.seconds[name] = 0.5;
    const task::VisionModel model{.net = nn::make_vision_net({.name = "resnet20",
                                                              .width = 16,
                                                              .channels = 1,
                                                              .height = 12,
                                                              .image_width = 12,
                                                              .classes = 4},
                                                             /*seed=*/3),
                                  .classes = {"0", "1", "2", "3"},
                                  .stats = {{0.4}, {0.3}}};
    task::write_vision_model(model_, model);
  }
  OptimizeOptions options(const char* level = "standard") const {
    OptimizeOptions out;
    out.model = model_;
    out.level = level;
    out.threads = 1;
    out.batch = 4;
    return out;
  }

  test::TemporaryFolder folder_;
  fs::path model_ = folder_.path() / "model", out_ = folder_.path() / "out";
  test::ScriptedMeasurer faster_;
};

TEST_F(Optimize, writes_the_weights_that_were_stored_in_fewer_bits) {
  const std::string before = read_text_file(model_ / "model.safetensors");
  OptimizeOptions job = options();
  job.out = out_;
  const OptimizeResult result = optimize_model(job, faster_);
  EXPECT_TRUE(result.written);
  EXPECT_EQ(read_text_file(model_ / "model.safetensors"), before);
  task::VisionModel read = task::read_vision_model(out_);
  EXPECT_EQ(nn::quantized_layers(*read.net.ptr()).size(), 20U);
  EXPECT_EQ(result.document["stages"].size(), 4U);
  EXPECT_EQ(result.document["out"], out_.string());
  EXPECT_THAT(to_table(result), HasSubstr("quantize"));
}

TEST_F(Optimize, calibrates_with_training_images) {
  const fs::path data = folder_.path() / "data";
  test::write_bar_folder(data, 12, 4, 60, 20);
  OptimizeOptions job = options("aggressive");
  job.data = data.string();
  job.max_error = 0.9;
  const OptimizeResult result = optimize_model(job, faster_);
  EXPECT_EQ(result.document["quantization"]["layers"][3]["algorithm"], "gptq");
}

TEST_F(Optimize, exact_writes_nothing) {
  OptimizeOptions job = options("exact");
  job.out = out_;
  const OptimizeResult result = optimize_model(job, faster_);
  EXPECT_FALSE(result.written);
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_TRUE(result.document["out"].is_null());
  EXPECT_THAT(to_table(result), HasSubstr("Nothing was written"));
}

TEST_F(Optimize, refuses_options_of_another_kind_of_model) {
  const auto refusal = [&](const OptimizeOptions& job) {
    return test::error_of([&] { optimize_model(job, faster_); });
  };
  OptimizeOptions shaped = options();
  shaped.shape = {1, 2};
  EXPECT_THAT(refusal(shaped), HasSubstr("--shape"));
  EXPECT_THAT(refusal(options("O3")), HasSubstr("--level"));
  OptimizeOptions file = options();
  file.model = folder_.path() / "none.pt";
  EXPECT_THAT(refusal(file), HasSubstr("--shape"));
  file.shape = {1, Index{1} << 40};
  EXPECT_THAT(refusal(file), HasSubstr("--shape"));
  file.shape = {1, 2};
  EXPECT_THAT(refusal(file), HasSubstr("none.pt"));
  OptimizeOptions other = options();
  other.model = folder_.path();
  EXPECT_THAT(refusal(other), HasSubstr("language models"));
  OptimizeOptions onto = options();
  onto.out = model_;
  EXPECT_THAT(refusal(onto), HasSubstr("model"));
}

}  // namespace
}  // namespace hone::app
