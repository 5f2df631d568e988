// SPDX-License-Identifier: Apache-2.0
// [amp] and trainer.ema_decay from the configuration to the exported model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hone/app/torch/train_lm.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

using testing::HasSubstr;

TrainLmJob precision_job(const std::filesystem::path& out) {
  TrainLmJob job;
  job.out = out / "run";
  job.config.model.hidden_size = 32, job.config.model.intermediate_size = 64;
  job.config.model.layers = 2, job.config.model.heads = 2, job.config.model.context = 16;
  job.config.data.tokenizer = "byte";
  job.config.data.stories = 60, job.config.data.held_out_stories = 5;
  job.config.lr.warm_up_steps = 5;
  job.config.trainer.steps = 40, job.config.trainer.micro_batch = 4;
  job.threads = 1;
  return job;
}

std::vector<trainer::MetricsRow> rows_of(const TrainLmResult& result) {
  return trainer::read_metrics(result.out / "metrics.csv");
}

std::string weights_of(const TrainLmResult& result) {
  return read_text_file(result.model / "model.safetensors");
}

TEST(TrainPrecision, every_precision_trains_to_about_the_loss_of_fp32) {
  double fp32 = 0;
  for (const char* precision : {"fp32", "bf16", "fp16", "auto"}) {
    const test::TemporaryFolder folder;
    TrainLmJob job = precision_job(folder.path());
    job.config.trainer.amp.precision = precision;
    const TrainLmResult result = train_lm(job);
    if (fp32 == 0) fp32 = result.val_loss;
    EXPECT_NEAR(result.val_loss, fp32, 0.05) << precision;
    const bool scaled = std::string(precision) == "fp16";
    EXPECT_EQ(rows_of(result).front().loss_scale.has_value(), scaled) << precision;
    EXPECT_GE(result.loop_share, 0);
    EXPECT_LT(result.loop_share, 1);
    const std::string toml = read_text_file(result.out / "train.toml");
    EXPECT_THAT(toml, Not(HasSubstr("precision = \"auto\""))) << "the choice is what is recorded";
  }
}

TEST(TrainPrecision, an_fp16_run_resumes_to_the_same_bits) {
  std::string want;
  for (const bool cut : {false, true}) {
    const test::TemporaryFolder folder;
    TrainLmJob job = precision_job(folder.path());
    job.config.trainer.amp.precision = "fp16";
    job.config.trainer.amp.init_scale = 1 << 26;  // overflows at first
    job.config.trainer.amp.growth_interval = 7;
    job.config.trainer.ema_decay = 0.95;
    if (cut) {
      const hone::test::StopFlag now{true};
      job.stop = now;
      EXPECT_THROW(train_lm(job), Error);
      job.stop = {};
      job.resume = true;
    }
    const TrainLmResult result = train_lm(job);
    const auto rows = rows_of(result);
    EXPECT_EQ(rows[0].loss_scale, 0x1p26);
    EXPECT_LT(*rows[5].loss_scale, 0x1p26);
    if (cut) {
      EXPECT_EQ(weights_of(result), want);
    } else {
      want = weights_of(result);
    }
  }
}

TEST(TrainPrecision, moving_averages_change_what_is_exported_and_not_how_is_trained) {
  const test::TemporaryFolder plain_folder, averaged_folder;
  const TrainLmResult plain = train_lm(precision_job(plain_folder.path()));
  TrainLmJob job = precision_job(averaged_folder.path());
  job.config.trainer.ema_decay = 0.9;
  const TrainLmResult averaged = train_lm(job);
  EXPECT_EQ(rows_of(plain).back().loss, rows_of(averaged).back().loss);
  EXPECT_NE(plain.val_loss, averaged.val_loss);
  EXPECT_NE(weights_of(plain), weights_of(averaged));
}

TEST(TrainPrecision, wrong_values_are_refused_by_name) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"amp.precision=fp8", "fp32, bf16, fp16 or auto"},
      {"amp.init_scale=0", "amp.init_scale"},
      {"amp.growth_interval=0", "amp.growth_interval"},
      {"amp.hysteresis=0", "amp.hysteresis"},
      {"trainer.ema_decay=1", "trainer.ema_decay"}};
  for (const auto& [assignment, said] : wrong) {
    task::LmConfig config;
    set_config(config, assignment);
    try {
      check_config(config);
      ADD_FAILURE() << "took " << assignment;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  }
}

}  // namespace
}  // namespace hone::app
