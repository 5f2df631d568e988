// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/task/lm/lm_task.h"
#include "hone/train/trainer/metrics_log.h"
#include "hone/train/trainer/schedule.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

constexpr Index kVocab = 100, kContext = 64, kBudgetSteps = 6;

struct Trained {
  Index peak = 0, fixed = 0;  // of tensors; weights, gradients and state
  std::vector<MetricsRow> rows;
  double val_loss = 0;
  Json facts;
  std::string log;
};

struct Options {
  Index max_bytes = 0, layers = 6, micro_batch = 6, stop_after = 0;
  bool resume = false;
};

// A model whose activations outweigh all else, for a few steps.
Trained train(const TemporaryFolder& folder, const Options& options) {
  task::LmConfig config;
  config.model = {.hidden_size = 48,
                  .intermediate_size = 128,
                  .layers = options.layers,
                  .heads = 3,
                  .context = kContext};
  std::vector<text::TokenId> tokens;
  for (Index i = 0; i < 4000; ++i) tokens.push_back(static_cast<text::TokenId>(i * i * i % kVocab));
  const memory::MemoryMeter meter;
  const Index base = meter.use().current;
  nn::Llama model(task::make_architecture(config, kVocab), 3);
  task::LmTask task(model, task::TokenWindows(tokens, kContext, 1),
                    {text::TokenStream{tokens, {4000}}, std::vector<Index>(kVocab, 1)},
                    options.micro_batch, 2, 1000);
  config.trainer.steps = kBudgetSteps;
  config.lr.peak = 1e-3;
  config.lr.warm_up_steps = 2;
  const auto optimizer = make_optimizer(config, *model);
  const auto scheduler = make_schedule(config.lr, config.trainer.steps, *optimizer);
  TrainerOptions trainer_options;
  trainer_options.steps = kBudgetSteps;
  trainer_options.accumulation_steps = 2;
  trainer_options.checkpoint_every = 1;
  trainer_options.folder = folder.path();
  if (options.max_bytes > 0) trainer_options.max_memory_bytes = base + options.max_bytes;
  Trainer trainer(trainer_options);
  if (options.resume) {
    EXPECT_TRUE(trainer.resume(task, *optimizer, *scheduler));
  }
  meter.reset_peak();
  testing::internal::CaptureStderr();
  hone::test::StopFlag stop{options.stop_after > 0};
  Trained run;
  try {
    run.val_loss = trainer.fit(task, *optimizer, *scheduler, stop).validation.loss;
  } catch (const Error& error) {
    run.log = testing::internal::GetCapturedStderr();
    if (error.category() != ErrorCategory::Cancelled) throw;
    return run;
  }
  run.log = testing::internal::GetCapturedStderr();
  run.peak = meter.use().peak - base;
  run.fixed = 4 * 4 * model->architecture().parameters();
  run.rows = read_metrics(folder.path() / "metrics.csv");
  CheckpointStore store(folder.path() / "checkpoints");
  run.facts = store.load_newest()->facts;
  return run;
}

void expect_close(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.rows.size(), static_cast<std::size_t>(kBudgetSteps));
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    EXPECT_NEAR(a.rows[i].loss, b.rows[i].loss, 1e-5) << i;
  }
  EXPECT_NEAR(a.val_loss, b.val_loss, 1e-5);
}

TEST(MemoryBudget, a_run_that_needs_1_6_times_the_limit_stays_below_it) {
  const TemporaryFolder unlimited_folder, folder;
  const Trained unlimited = train(unlimited_folder, {});
  ASSERT_GT(unlimited.peak, 3 * unlimited.fixed) << "activations are what is large";
  EXPECT_EQ(unlimited.log.find("memory:"), std::string::npos);
  const Index limit = static_cast<Index>(static_cast<double>(unlimited.peak) / 1.6);
  const Trained limited = train(folder, {.max_bytes = limit});
  EXPECT_LE(limited.peak, limit);
  expect_close(limited, unlimited);
  EXPECT_THAT(limited.log, HasSubstr("step 1 would exceed"));
  EXPECT_THAT(limited.log, HasSubstr("handed back"));
  EXPECT_THAT(limited.log, HasSubstr("computed again"));
  EXPECT_THAT(limited.log, HasSubstr("fits now"));
  EXPECT_EQ(limited.facts.at("memory_actions").at("splits"), 0);
}

TEST(MemoryBudget, halves_micro_batches_when_recomputation_is_not_enough) {
  const TemporaryFolder unlimited_folder, folder, resumed;
  const Trained unlimited = train(unlimited_folder, {});
  const Index limit = unlimited.fixed + (unlimited.peak - unlimited.fixed) / 8;
  const Trained limited = train(folder, {.max_bytes = limit});
  EXPECT_LE(limited.peak, limit);
  expect_close(limited, unlimited);
  EXPECT_GE(limited.facts.at("memory_actions").at("splits"), 1);
  EXPECT_THAT(limited.log, HasSubstr("halved"));
  // Resumed after its first step, the run takes the same measures and gives the same bits.
  train(resumed, {.max_bytes = limit, .stop_after = 1});
  const Trained again = train(resumed, {.max_bytes = limit, .resume = true});
  ASSERT_EQ(again.rows.size(), limited.rows.size());
  for (std::size_t i = 0; i < again.rows.size(); ++i) {
    EXPECT_EQ(again.rows[i].loss, limited.rows[i].loss) << i;
  }
  EXPECT_EQ(again.log.find("computed again"), std::string::npos) << again.log;
}

TEST(MemoryBudget, ends_with_one_sentence_where_nothing_helps) {
  const TemporaryFolder folder;
  const Trained unlimited = train(folder, {.layers = 1, .micro_batch = 1});
  for (const Index limit : {unlimited.fixed / 2, unlimited.fixed}) {
    const TemporaryFolder limited;
    try {
      train(limited, {.max_bytes = limit, .layers = 1, .micro_batch = 1});
      ADD_FAILURE() << limit;
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::Resource);
      EXPECT_THAT(error.what(), HasSubstr("trainer.max_memory_mb"));
    }
  }
}

}  // namespace
}  // namespace hone::trainer
