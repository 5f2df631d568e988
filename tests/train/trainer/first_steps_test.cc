// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/first_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "hone/train/task/lm/lm_config.h"
#include "hone/train/task/vision/vision_config.h"

namespace hone::trainer {
namespace {

using testing::HasSubstr;

optim::LrConfig constant_rate() { return {.schedule = "constant", .peak = 0, .warm_up_steps = 0}; }

// The first steps in optimizers.md, which the kernels are tested against.
TEST(FirstSteps, are_those_of_the_closed_form_of_a_constant_gradient) {
  const optim::OptimConfig adatamw{.name = "adatamw", .beta2 = 0.999};
  const FirstSteps largest = first_steps_of(adatamw, constant_rate(), 1e-3, 100);
  EXPECT_NEAR(largest.largest, 52.943e-3, 1e-5);
  EXPECT_EQ(largest.at, 22);
  EXPECT_NEAR(first_steps_of(adatamw, constant_rate(), 1e-3, 1).largest, 15.811e-3, 1e-5);
  const optim::OptimConfig tam{.name = "tam", .beta2 = 0.999};
  EXPECT_NEAR(first_steps_of(tam, constant_rate(), 0.1, 1).largest, 0.05, 1e-8);
  EXPECT_NEAR(first_steps_of(tam, constant_rate(), 0.1, 500).largest, 1, 1e-7);
}

TEST(FirstSteps, follow_the_schedule_and_the_settings_of_the_rule) {
  const optim::LrConfig warm{.schedule = "constant", .peak = 0, .warm_up_steps = 10};
  optim::OptimConfig tam{.name = "tam", .beta2 = 0.999};
  EXPECT_NEAR(first_steps_of(tam, warm, 0.1, 1).largest, 0.005, 1e-9) << "a tenth of the rate";
  tam.fixed_damping = 0.25;
  EXPECT_NEAR(first_steps_of(tam, constant_rate(), 0.1, 500).largest, 0.25, 1e-7);
  tam.momentum = 0;
  EXPECT_NEAR(first_steps_of(tam, constant_rate(), 0.1, 500).largest, 0.025, 1e-8);
  const optim::OptimConfig adatam{.name = "adatam", .beta2 = 0};
  EXPECT_NEAR(first_steps_of(adatam, constant_rate(), 1, 500).largest, 10, 1e-6);
}

std::string warning_of(optim::RuleTable rules, const optim::OptimConfig& optim, double peak = 0) {
  const optim::LrConfig lr{.peak = peak};
  return first_steps_warning(optim, lr, peak_of(optim, lr, rules), rules, 1000).value_or("");
}

TEST(FirstSteps, of_defaults_and_presets_need_no_warning) {
  for (const optim::RuleTable rules : {task::lm_rules(), task::vision_rules()}) {
    for (const optim::RuleDefaults& rule : rules) {
      EXPECT_EQ(warning_of(rules, {.name = std::string(rule.name)}), "");
    }
  }
}

TEST(FirstSteps, that_are_several_times_those_of_the_other_rule_are_named) {
  for (const optim::RuleTable rules : {task::lm_rules(), task::vision_rules()}) {
    for (const char* name : {"adatam", "adatamw"}) {
      EXPECT_THAT(warning_of(rules, {.name = name, .beta2 = 0.999}),
                  testing::AllOf(HasSubstr(name), HasSubstr("lower lr.peak or optim.beta2")));
      const double rate = optim::find_rule(rules, "adamw").peak;
      EXPECT_THAT(warning_of(rules, {.name = name}, rate), HasSubstr("with adamw at its default"));
    }
    const double rate = optim::find_rule(rules, "sgd").peak;
    EXPECT_THAT(warning_of(rules, {.name = "tam"}, 4 * rate), HasSubstr("with sgd at its default"));
    EXPECT_THAT(warning_of(rules, {.name = "tam", .momentum = 0.99}),
                HasSubstr("lower lr.peak or optim.momentum"));
    EXPECT_EQ(warning_of(rules, {.name = "adamw"}, 10), "") << "of the TAM family only";
  }
}

}  // namespace
}  // namespace hone::trainer
