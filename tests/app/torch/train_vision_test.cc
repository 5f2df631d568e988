// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/train_vision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/app/torch/memory_vision.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/train/trainer/checkpoint.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

using testing::HasSubstr;

TrainVisionJob vision_job(const std::filesystem::path& folder, const char* model) {
  set_log_level(LogLevel::Error);
  test::write_bar_folder(folder / "data", 12, 4, 200, 40);
  TrainVisionJob job;
  job.config.model = {.name = model, .width = 8};
  job.config.data.path = folder / "data";
  job.config.lr.warm_up_steps = 5;
  job.config.trainer.steps = 40;
  job.config.trainer.micro_batch = 20;
  job.config.trainer.checkpoint_every = 10;
  job.config.trainer.validate_every = 20;
  job.out = folder / "run";
  job.threads = 1;
  return job;
}

// Afterwards the job goes on.
void interrupt_after_a_step(TrainVisionJob& job) {
  const hone::test::StopFlag stop{true};
  job.stop = stop;
  EXPECT_THROW(train_vision(job), Error);
  job.stop = {};
  job.resume = true;
}

TEST(TrainVision, learns_and_writes_metrics_and_model) {
  const test::TemporaryFolder folder;
  const TrainVisionResult result = train_vision(vision_job(folder.path(), "cnn"));
  EXPECT_EQ(result.steps, 40);
  EXPECT_EQ(result.classes, 4);
  EXPECT_GT(result.val_accuracy, 0.9);
  // The steps took a part of the time.
  EXPECT_GE(result.images_per_s.value() * result.seconds, 40 * 20) << "images, not batches";
  const auto rows = trainer::read_metrics(result.out / "metrics.csv");
  ASSERT_EQ(rows.size(), 40u);
  EXPECT_FALSE(rows[0].val_accuracy);
  EXPECT_TRUE(rows[19].val_accuracy && rows[19].val_loss && !rows[19].val_bits_per_byte);
  EXPECT_EQ(*rows[39].val_accuracy, result.val_accuracy);
  EXPECT_EQ(*rows[39].val_loss, result.val_loss);
  EXPECT_TRUE(std::filesystem::exists(result.model / "model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(result.model / "config.json"));
  for (const char* field : {"steps", "train_loss", "val_loss", "val_accuracy", "images_per_s",
                            "out", "model", "broken_images"}) {
    EXPECT_TRUE(to_json(result).contains(field)) << field;
  }
}

// BatchNorm's running means are part of what is saved.
TEST(TrainVision, resumes_after_an_interrupt_to_the_same_model) {
  for (const char* model : {"cnn", "resnet20"}) {
    const test::TemporaryFolder whole, parts;
    TrainVisionJob job = vision_job(whole.path(), model);
    job.config.trainer.steps = 12;
    job.config.augment.flip = 0.5;
    const TrainVisionResult expected = train_vision(job);
    job.config.data.path = parts.path() / "data";
    test::write_bar_folder(parts.path() / "data", 12, 4, 200, 40);
    job.out = parts.path() / "run";
    interrupt_after_a_step(job);
    job.config.data.workers = 0;
    const TrainVisionResult result = train_vision(job);
    EXPECT_EQ(result.val_loss, expected.val_loss) << model;
    EXPECT_TRUE(read_text_file(result.model / "model.safetensors") ==
                read_text_file(expected.model / "model.safetensors"))
        << model;
  }
}

TEST(TrainVision, starts_from_the_weights_of_a_run_and_goes_on_without_them) {
  const test::TemporaryFolder folder;
  TrainVisionJob first = vision_job(folder.path() / "first", "resnet20");
  const TrainVisionResult trained = train_vision(first);
  TrainVisionJob job = vision_job(folder.path(), "resnet20");
  job.config.trainer.steps = 4;
  job.config.trainer.seed = 1;
  job.config.model.init = first.out;
  const TrainVisionResult expected = train_vision(job);
  EXPECT_LT(*expected.train_loss, 2 * *trained.train_loss + 0.1) << "a new model has 1.4";

  job.out = folder.path() / "parts";
  interrupt_after_a_step(job);
  job.config.model.init = folder.path() / "other";
  EXPECT_THAT(test::error_of([&] { train_vision(job); }), HasSubstr("model.init"));
  std::filesystem::remove_all(first.out);
  job.config.model.init = first.out;
  EXPECT_TRUE(read_text_file(train_vision(job).model / "model.safetensors") ==
              read_text_file(expected.model / "model.safetensors"));

  job.resume = false;
  job.fresh = true;
  EXPECT_THAT(test::error_of([&] { train_vision(job); }), HasSubstr("first")) << "it is gone";
  job.config.model.init = job.out / "model";
  EXPECT_THAT(test::error_of([&] { train_vision(job); }),
              HasSubstr("The output must not contain the input"));
  EXPECT_TRUE(std::filesystem::exists(job.out / "model" / "model.safetensors"));
}

// Which parameters were loaded is known to the checkpoint only.
TEST(TrainVision, goes_on_at_the_rate_of_a_backbone_whose_first_weights_are_gone) {
  const test::TemporaryFolder folder;
  TrainVisionJob first = vision_job(folder.path() / "first", "resnet20");
  test::write_bar_folder(first.config.data.path, 12, 3, 60, 12);  // another classifier
  first.config.trainer.steps = 2;
  train_vision(first);
  TrainVisionJob job = vision_job(folder.path(), "resnet20");
  job.config.trainer.steps = 6;
  job.config.model.init = first.out;
  const auto train = [&](const char* out, double scale) {
    job.out = folder.path() / out;
    job.config.backbone_scale = scale;
    return read_text_file(train_vision(job).model / "model.safetensors");
  };
  const std::string expected = train("whole", 0.1);
  EXPECT_FALSE(train("one", 1) == expected);

  job.out = folder.path() / "parts";
  job.config.backbone_scale = 0.1;
  interrupt_after_a_step(job);
  EXPECT_THAT(test::error_of([&] { train("parts", 0.2); }), HasSubstr("lr.backbone_scale"));
  std::filesystem::remove_all(first.out);
  job.config.backbone_scale = 0.1;
  interrupt_after_a_step(job);  // a checkpoint of the resumed run knows them, too
  EXPECT_TRUE(train("parts", 0.1) == expected);
}

TEST(TrainVision, refuses_to_resume_with_other_images_or_another_key) {
  const test::TemporaryFolder folder;
  TrainVisionJob job = vision_job(folder.path(), "mlp");
  job.config.trainer.steps = 3;
  train_vision(job);
  const auto message = [&] {
    try {
      train_vision(job);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(), HasSubstr("already holds a run"));
  job.resume = true;
  job.config.augment.flip = 0.5;
  EXPECT_THAT(message(), HasSubstr("augment.flip"));
  job.config.augment.flip = 0;
  test::write_bar_folder(folder.path() / "data", 12, 4, 196, 40);
  EXPECT_THAT(message(), HasSubstr("the images that the run was started with"));
}

TEST(TrainVision, fixes_steps_from_minutes_without_moving_running_means) {
  const test::TemporaryFolder folder;
  TrainVisionJob job = vision_job(folder.path(), "resnet20");
  job.minutes = 0.02;
  const TrainVisionResult result = train_vision(job);
  EXPECT_GE(result.steps, 1);
  EXPECT_LT(result.seconds, 60);
}

// The projection of parts then has no gradient, and no state in the optimizer.
TEST(TrainVision, leaves_out_losses_without_a_weight_and_resumes_without_them) {
  const test::TemporaryFolder whole, parts;
  const auto job_in = [](const test::TemporaryFolder& folder) {
    TrainVisionJob job = vision_job(folder.path(), "resnet20");
    job.config.loss.method = "paco";
    job.config.paco.lambda_pac = job.config.paco.eta_soc = 0;
    job.config.trainer.steps = 4;
    return job;
  };
  const TrainVisionResult expected = train_vision(job_in(whole));
  const auto rows = trainer::read_metrics(expected.out / "metrics.csv");
  ASSERT_EQ(rows.size(), 4u);
  for (const trainer::MetricsRow& row : rows) {
    EXPECT_NEAR(row.ce.value(), row.loss, 1e-6 * row.loss);
    EXPECT_FALSE(row.pac || row.soc || row.active_share || row.empty_share);
  }
  TrainVisionJob job = job_in(parts);
  interrupt_after_a_step(job);
  EXPECT_TRUE(read_text_file(train_vision(job).model / "model.safetensors") ==
              read_text_file(expected.model / "model.safetensors"));
}

TEST(TrainVision, leaves_out_broken_images_and_says_how_many) {
  const test::TemporaryFolder folder;
  TrainVisionJob job = vision_job(folder.path(), "mlp");
  job.config.data.path = folder.path() / "pictures";
  job.config.data.image_size = 12;
  for (int i = 0; i < 30; ++i) {
    const std::string gray =
        test::bar_picture(12, i % 2 == 0 ? 1 : 8, static_cast<std::uint64_t>(i));
    std::string pixels;
    for (const char c : gray) pixels += std::string(3, c);
    const std::string file = test::ppm_file(12, 12, pixels);
    test::write_bytes(
        folder.path() / "pictures" / (i % 2 == 0 ? "up" : "down") / (std::to_string(i) + ".ppm"),
        i == 4 ? file.substr(0, 50) : file);
  }
  job.config.trainer.steps = 30;
  job.config.trainer.micro_batch = 10;
  const TrainVisionResult result = train_vision(job);
  EXPECT_EQ(result.broken_images, 1);
  EXPECT_EQ(result.classes, 2);
  EXPECT_LT(result.train_loss, 0.5);
}

TEST(MemoryVision, reports_a_step_and_the_largest_micro_batch_within_a_limit) {
  const test::TemporaryFolder folder;
  MemoryVisionJob job{
      .config = vision_job(folder.path(), "cnn").config, .threads = 1, .search_batch = true};
  job.config.trainer.max_memory_mb = 8;
  job.config.loss.on_collapse = "off";  // its state counts with the weights
  const MemoryMeasurement result = memory_vision(job);
  EXPECT_EQ(result.measured->weights, 4 * result.parameters);
  EXPECT_EQ(result.measured->state, 8 * result.parameters) << "two moments of adamw";
  ASSERT_TRUE(result.search);
  EXPECT_GT(result.search->batch, 1);
  const Index most = result.search->batch;
  job.search_batch = false;
  job.config.trainer.micro_batch = 2 * most;
  EXPECT_GT(memory_vision(job).measured->total(), 8 << 20);
  EXPECT_EQ(to_json(result).at("largest_micro_batch").get<Index>(), most);
}

// A limit below what a step takes halves micro-batches where that changes nothing.
TEST(MemoryVision, the_limit_of_the_configuration_reaches_the_trainer) {
  const test::TemporaryFolder folder;
  TrainVisionJob job = vision_job(folder.path(), "cnn");
  job.config.trainer.steps = 2;
  job.config.trainer.micro_batch = 400;
  job.config.trainer.max_memory_mb = 8;
  EXPECT_EQ(train_vision(job).steps, 2);
  job.config.model.name = "resnet20";  // which is not split
  job.config.trainer.max_memory_mb = 4;
  job.fresh = true;
  EXPECT_THROW(train_vision(job), Error);
}

// Rewrites what the newest checkpoint records as the device.
void record_device(const std::filesystem::path& out, Index step, const char* device) {
  const auto manifest =
      trainer::CheckpointStore(out / "checkpoints").path_of(step) / "manifest.json";
  Json json = read_json_file(manifest);
  json["facts"]["run"]["config"]["trainer.device"] = device;
  json["facts_sha256"] = sha256_hex_of_text(json["facts"].dump());
  write_json_file(manifest, json);
}

TEST(TrainVision, goes_on_where_another_device_began) {
  const test::TemporaryFolder folder;
  TrainVisionJob job = vision_job(folder.path(), "resnet20");
  job.config.trainer.steps = 6;
  const TrainVisionResult expected = train_vision(job);
  job.out = folder.path() / "parts";
  interrupt_after_a_step(job);
  record_device(job.out, 1, "\"cuda:3\"");
  EXPECT_TRUE(read_text_file(train_vision(job).model / "model.safetensors") ==
              read_text_file(expected.model / "model.safetensors"));
}

TEST(TrainVision, refuses_a_device_that_is_not_there_and_leaves_nothing) {
  const test::TemporaryFolder folder;
  TrainVisionJob job = vision_job(folder.path(), "cnn");
  job.config.trainer.device = "cuda:63";
  MemoryVisionJob memory{.config = job.config, .threads = 1};
  for (const auto& message :
       {test::refusal([&] { train_vision(job); }, ErrorCategory::Unsupported),
        test::refusal([&] { memory_vision(memory); }, ErrorCategory::Unsupported)}) {
    EXPECT_THAT(message, HasSubstr("[trainer.device] expected a CUDA device"));
  }
  EXPECT_FALSE(std::filesystem::exists(job.out));
}

}  // namespace
}  // namespace hone::app
