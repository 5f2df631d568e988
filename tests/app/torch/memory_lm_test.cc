// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/memory_lm.h"

#include <gtest/gtest.h>

#include "hone/app/torch/train_lm.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

task::LmConfig small_config(const test::TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat.\n";
  write_text_file(folder.path() / "text.txt", text);
  task::LmConfig config;
  config.model = {
      .hidden_size = 32, .intermediate_size = 64, .layers = 2, .heads = 2, .context = 32};
  config.data.path = folder.path() / "text.txt";
  config.data.tokenizer = "byte";
  config.trainer.steps = 2;
  return config;
}

TEST(MemoryLm, reports_both_columns_and_the_largest_micro_batch_within_a_limit) {
  const test::TemporaryFolder folder;
  MemoryLmJob job{.config = small_config(folder), .threads = 1, .search_batch = true};
  job.config.trainer.max_memory_mb = 8;
  const MemoryLmResult result = memory_lm(job);
  EXPECT_EQ(result.measured->weights, 4 * result.parameters);
  ASSERT_TRUE(result.predicted);
  EXPECT_EQ(result.measured->state, result.predicted->state);
  EXPECT_NEAR(static_cast<double>(result.measured->total()),
              static_cast<double>(result.predicted->total()),
              0.05 * static_cast<double>(result.predicted->total()));
  EXPECT_EQ(result.search->limit_bytes, 8 << 20);
  const Index most = result.search->batch;
  job.search_batch = false;
  job.config.trainer.micro_batch = most;
  EXPECT_LE(memory_lm(job).measured->total() - result.measured->gradients, 8 << 20);
  job.config.trainer.micro_batch = 2 * most;
  EXPECT_GT(memory_lm(job).measured->total(), 8 << 20);
  EXPECT_EQ(to_json(result).at("largest_micro_batch").get<Index>(), most);
}

TEST(MemoryLm, the_limit_of_the_configuration_reaches_the_trainer) {
  const test::TemporaryFolder folder;
  TrainLmJob job{.config = small_config(folder), .out = folder.path() / "run", .threads = 1};
  job.config.trainer.max_memory_mb = 1;
  job.config.trainer.micro_batch = 256;
  job.config.trainer.recompute_every = 2;
  job.config.trainer.metrics = {"csv", "jsonl"};
  set_log_level(LogLevel::Info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(train_lm(job).steps, 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("step 1 would exceed"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(job.out / "metrics.jsonl"));
  job.minutes = 1;
  job.fresh = true;
  EXPECT_NE(hone::test::error_of([&] { train_lm(job); }).find("[minutes]"), std::string::npos);
}

}  // namespace
}  // namespace hone::app
