// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/memory_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace hone::task {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The shapes of a Llama of 135 M parameters.
LmConfig large_config() {
  LmConfig config;
  config.model = {.init = "m",
                  .hidden_size = 576,
                  .intermediate_size = 1536,
                  .layers = 30,
                  .heads = 9,
                  .kv_heads = 3,
                  .context = 8192};
  return config;
}
constexpr Index kWords = 49'152, kGigabytes = 1'000'000'000;

std::string refused(const LmConfig& config, Index free) {
  return test::refusal(
      [&] { check_memory(config, make_architecture(config, kWords), window_of(config), free); },
      ErrorCategory::Resource);
}

TEST(MemoryCheck, accepts_a_step_that_fits) {
  const LmConfig config = large_config();
  EXPECT_EQ(window_of(config), 512);
  const StepMemory memory =
      step_memory(config, make_architecture(config, kWords), 512, 22 * kGigabytes);
  EXPECT_GT(memory.needed, 4 * kGigabytes);
  EXPECT_LT(memory.needed, 10 * kGigabytes);
  EXPECT_EQ(refused(config, memory.needed), "");
  EXPECT_NE(refused(config, memory.needed - 1), "");
}

TEST(MemoryCheck, names_the_key_to_lower_and_a_value_that_fits) {
  LmConfig config = large_config();
  config.trainer.micro_batch = 64;
  const model_io::Architecture model = make_architecture(config, kWords);
  const Index free = 8 * kGigabytes, most = largest_micro_batch(config, model, 512, free);
  ASSERT_GT(most, 1);
  EXPECT_THAT(refused(config, free),
              AllOf(HasSubstr("[trainer.micro_batch] expected at most " + std::to_string(most)),
                    HasSubstr("got 64")));
  config.trainer.micro_batch = most;
  EXPECT_EQ(refused(config, free), "");
  config.trainer.micro_batch = most + 1;
  EXPECT_NE(refused(config, free), "");
}

TEST(MemoryCheck, goes_on_to_recomputation_to_the_window_and_to_the_model) {
  LmConfig config = large_config();
  config.data.window = 8192;
  const Index fixed = [&] {
    const auto parts =
        step_memory(config, make_architecture(config, kWords), 8192, kGigabytes).parts;
    return parts.weights + parts.gradients + parts.state;
  }();
  EXPECT_THAT(refused(config, fixed + 4 * kGigabytes), HasSubstr("[trainer.recompute_every]"));
  EXPECT_THAT(refused(config, fixed + kGigabytes), HasSubstr("[data.window]"));
  EXPECT_THAT(refused(config, fixed / 2), HasSubstr("[model]"));
}

TEST(MemoryCheck, counts_averages_and_what_a_limit_allows) {
  LmConfig config = large_config();
  const model_io::Architecture model = make_architecture(config, kWords);
  const Index plain = step_memory(config, model, 512, kGigabytes).needed;
  config.trainer.ema_decay = 0.99;
  const StepMemory averaged = step_memory(config, model, 512, kGigabytes);
  EXPECT_EQ(averaged.needed, plain + averaged.parts.weights);
  config.trainer.max_memory_mb = 1024;
  const StepMemory limited = step_memory(config, model, 512, kGigabytes);
  EXPECT_EQ(limited.needed, Index{1} << 30);
  EXPECT_THAT(limited.text(), HasSubstr("trainer.max_memory_mb limits it to 1074 MB"));
  config.trainer.max_memory_mb = limited.fixed >> 21;
  EXPECT_THAT(refused(config, 100 * kGigabytes), HasSubstr("[trainer.max_memory_mb]"));
}

}  // namespace
}  // namespace hone::task
