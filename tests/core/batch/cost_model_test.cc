// SPDX-License-Identifier: Apache-2.0
#include "hone/core/batch/cost_model.h"

#include <gtest/gtest.h>

#include <limits>

#include "hone/core/philox.h"
#include "tests/support/largest_error.h"

namespace hone {
namespace {

struct Machine {
  double base, decode, prefill, kv;
  double seconds(const StepShape& shape) const {
    return base + decode * static_cast<double>(shape.decode_rows) +
           prefill * static_cast<double>(shape.prefill_tokens) +
           kv * static_cast<double>(shape.kv_tokens);
  }
};

StepShape random_step(PhiloxStream& random) {
  const Index decodes = random.below(9), chunk = random.below(2) * 16 * random.below(17);
  return {.decode_rows = decodes,
          .prefill_tokens = chunk,
          .kv_tokens = (decodes + chunk + 1) * random.below(2000)};
}

void run_on(CostModel& model, const Machine& machine, int steps, double noise,
            PhiloxStream& random) {
  for (int i = 0; i < steps; ++i) {
    const StepShape shape = random_step(random);
    model.observe(shape, machine.seconds(shape) * (1 + noise * (2 * random.uniform() - 1)));
  }
}

double worst_error(const CostModel& model, const Machine& machine, PhiloxStream& random) {
  hone::test::LargestError worst;
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = random_step(random);
    worst.add(model.predict(shape) / machine.seconds(shape), 1);
  }
  return worst.error;
}

constexpr Machine kSmall{2e-4, 1e-5, 5e-6, 1e-9}, kLarge{0.05, 2e-3, 9e-3, 4e-7};

TEST(CostModel, finds_the_coefficients_of_fast_and_slow_machines) {
  for (const Machine& machine : {kSmall, kLarge}) {
    PhiloxStream random(1);
    CostModel model;
    run_on(model, machine, 300, 0, random);
    EXPECT_LT(worst_error(model, machine, random), 0.03);
  }
}

// Steps of a long prompt take as long as the target allows, whatever they hold, and tell nothing of
// decodes alone, from which the target follows.
TEST(CostModel, a_long_prompt_does_not_change_what_decodes_alone_take) {
  constexpr StepShape kDecodes{.decode_rows = 2, .prefill_tokens = 0, .kv_tokens = 40};
  CostModel model;
  for (int i = 0; i < 64; ++i) model.observe(kDecodes, 0.02);
  for (Index depth = 0; depth < 8000; depth += 8) {
    const Index rows = depth < 2000 ? 16 : depth < 5000 ? 8 : 4;
    model.observe({.decode_rows = 2, .prefill_tokens = rows, .kv_tokens = rows * depth}, 0.05);
  }
  EXPECT_NEAR(model.predict(kDecodes), 0.02, 0.002);
}

TEST(CostModel, noise_averages_out) {
  PhiloxStream random(2);
  CostModel model;
  run_on(model, kLarge, 500, 0.2, random);
  EXPECT_LT(worst_error(model, kLarge, random), 0.25);
}

TEST(CostModel, follows_a_machine_that_becomes_slower) {
  PhiloxStream random(3);
  CostModel model;
  run_on(model, kLarge, 300, 0.02, random);
  const Machine throttled{0.15, 6e-3, 27e-3, 12e-7};
  run_on(model, throttled, 300, 0.02, random);
  EXPECT_LT(worst_error(model, throttled, random), 0.1);
}

TEST(CostModel, more_work_is_never_predicted_to_take_less_time) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PhiloxStream random(seed);
    CostModel model;
    for (int i = 0; i < 50; ++i) model.observe(random_step(random), 1e-3 + random.uniform());
    const StepShape shape = random_step(random);
    StepShape more = shape;
    ++more.decode_rows;
    more.prefill_tokens += 16;
    more.kv_tokens += 1000;
    EXPECT_GE(model.predict(more), model.predict(shape));
    EXPECT_GE(model.predict(shape), 0);
  }
}

TEST(CostModel, before_the_first_step_and_for_useless_times_the_prior_holds) {
  CostModel model;
  const StepShape shape{.decode_rows = 4, .prefill_tokens = 96};
  EXPECT_NEAR(model.predict(shape), 0.1, 1e-12);
  for (const double useless : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    model.observe(shape, useless);
  }
  EXPECT_NEAR(model.predict(shape), 0.1, 1e-12);
}

}  // namespace
}  // namespace hone
