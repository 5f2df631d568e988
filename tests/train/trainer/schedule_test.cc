// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <initializer_list>
#include <memory>
#include <numbers>
#include <tuple>
#include <vector>

#include "hone/core/error.h"
#include "hone/train/optim/adam.h"
#include "hone/train/task/lm/lm_config.h"

namespace hone::trainer {
namespace {

// What a run of `config` has: the rate of every step, and the first beta.
struct Trace {
  std::vector<double> rates, betas;
};

Trace trace_of(std::initializer_list<const char*> settings) {
  task::LmConfig config;
  for (const char* setting : settings) set_config(config, setting);
  optim::AdamW optimizer({torch::zeros({1})}, optim::AdamWOptions(config.lr.peak));
  const optim::SchedulerPtr scheduler = make_schedule(config.lr, config.trainer.steps, optimizer);
  const auto& options =
      static_cast<const optim::AdamWOptions&>(optimizer.param_groups()[0].options());
  Trace trace;
  for (Index step = 0; step < config.trainer.steps; ++step) {
    trace.rates.push_back(scheduler->last_rates()[0]);
    trace.betas.push_back(std::get<0>(options.betas()));
    scheduler->step();
  }
  return trace;
}

TEST(MakeSchedule, warms_up_and_follows_a_half_cosine_by_default) {
  const auto rates = trace_of({"lr.peak=0.4", "lr.warm_up_steps=10", "trainer.steps=110"}).rates;
  EXPECT_DOUBLE_EQ(rates[0], 0.04);
  EXPECT_DOUBLE_EQ(rates[9], 0.4);
  EXPECT_DOUBLE_EQ(rates[10], 0.4);
  EXPECT_NEAR(rates[60], 0.4 * 0.55, 1e-15);  // half way: (1 + final_ratio) / 2
  for (std::size_t step = 0; step < 10; ++step) {
    EXPECT_NEAR(rates[step], 0.04 * static_cast<double>(step + 1), 1e-15);
  }
  for (std::size_t step = 10; step < 110; ++step) {
    const double angle = std::numbers::pi * static_cast<double>(step - 10) / 100;
    EXPECT_NEAR(rates[step], 0.04 + 0.36 * (1 + std::cos(angle)) / 2, 1e-15);
  }
}

TEST(MakeSchedule, does_without_a_warm_up_and_with_one_longer_than_the_run) {
  const auto without =
      trace_of({"lr.peak=1", "lr.final_ratio=0", "lr.warm_up_steps=0", "trainer.steps=4"}).rates;
  EXPECT_EQ(without[0], 1);
  EXPECT_NEAR(without[2], 0.5, 1e-15);
  const auto rates = trace_of({"lr.peak=1", "lr.warm_up_steps=8", "trainer.steps=4"}).rates;
  EXPECT_THAT(rates, testing::ElementsAre(0.125, 0.25, 0.375, 0.5));
}

TEST(MakeSchedule, linear_ends_at_the_final_ratio_and_constant_stays) {
  const auto linear = trace_of({"lr.schedule=linear", "lr.peak=1", "lr.final_ratio=0.2",
                                "lr.warm_up_steps=2", "trainer.steps=10"})
                          .rates;
  for (std::size_t step = 2; step < 10; ++step) {
    EXPECT_NEAR(linear[step], 1 - 0.1 * static_cast<double>(step - 2), 1e-15);
  }
  EXPECT_EQ(linear[0], 0.5);
  const auto constant =
      trace_of({"lr.schedule=constant", "lr.peak=1", "lr.warm_up_steps=2", "trainer.steps=5"})
          .rates;
  EXPECT_THAT(constant, testing::ElementsAre(0.5, 1, 1, 1, 1));
}

TEST(MakeSchedule, one_cycle_rises_over_its_share_and_moves_momentum_when_told_to) {
  const Trace trace = trace_of({"lr.schedule=one_cycle", "lr.peak=1", "lr.final_ratio=0.5",
                                "lr.rise=0.5", "trainer.steps=100"});
  EXPECT_NEAR(trace.rates[0], 0.04, 1e-15);
  EXPECT_EQ(trace.rates[49], 1);
  EXPECT_NEAR(trace.rates[99], 0.5, 1e-15);
  EXPECT_THAT(trace.betas, testing::Each(0.9)) << "that of [optim]";
  const Trace moved = trace_of({"lr.schedule=one_cycle", "lr.peak=1", "lr.final_ratio=0",
                                "lr.cycle_momentum=true", "trainer.steps=100"});
  EXPECT_EQ(moved.rates[29], 1);
  EXPECT_EQ(moved.rates[99], 0);
  EXPECT_NEAR(moved.betas[0], 0.95, 1e-15);
  EXPECT_NEAR(moved.betas[29], 0.85, 1e-15);
}

TEST(MakeSchedule, keeps_the_rates_of_groups_in_proportion) {
  for (const char* schedule : {"cosine", "linear", "constant", "one_cycle"}) {
    for (const double share : {0.1, 0.0}) {
      optim::LrConfig lr;
      lr.schedule = schedule;
      lr.warm_up_steps = 5;
      std::vector<torch::optim::OptimizerParamGroup> groups;
      for (const double rate : {0.4, share * 0.4}) {
        groups.emplace_back(std::vector<torch::Tensor>{torch::zeros({1})},
                            std::make_unique<optim::AdamWOptions>(rate));
      }
      optim::AdamW optimizer(groups, optim::AdamWOptions(0.4));
      const optim::SchedulerPtr scheduler = make_schedule(lr, 40, optimizer);
      for (Index step = 0; step < 40; ++step) {
        const std::vector<double> rates = scheduler->last_rates();
        EXPECT_GT(rates[0], 0);
        EXPECT_NEAR(rates[1], share * rates[0], share * 1e-15) << schedule << " at " << step;
        scheduler->step();
      }
    }
  }
}

TEST(FirstChangedRate, is_that_of_the_first_step_whose_rate_depends_on_the_length) {
  const auto changed = [](std::initializer_list<const char*> settings, Index done) {
    task::LmConfig config;
    for (const char* setting : settings) set_config(config, setting);
    return first_changed_rate(config.lr, 0.3, done, 100, 200);
  };
  constexpr std::nullopt_t kNone = std::nullopt;
  EXPECT_EQ(changed({"lr.schedule=constant", "lr.warm_up_steps=7"}, 100), kNone);
  EXPECT_EQ(changed({"lr.schedule=linear", "lr.final_ratio=1"}, 100), kNone)
      << "a line that is flat";
  EXPECT_EQ(changed({"lr.schedule=cosine", "lr.final_ratio=1"}, 100), kNone);
  for (const char* schedule : {"lr.schedule=linear", "lr.schedule=cosine"}) {
    EXPECT_EQ(changed({schedule, "lr.warm_up_steps=7"}, 100), 8) << "after the peak, at step 7";
    EXPECT_EQ(changed({schedule, "lr.warm_up_steps=7"}, 8), kNone);
    EXPECT_EQ(changed({schedule, "lr.warm_up_steps=7"}, 9), 8);
  }
  EXPECT_EQ(changed({"lr.schedule=one_cycle"}, 100), 1);
  EXPECT_EQ(changed({"lr.schedule=one_cycle"}, 1), kNone);
  EXPECT_EQ(changed({}, 0), kNone);
}

}  // namespace
}  // namespace hone::trainer
