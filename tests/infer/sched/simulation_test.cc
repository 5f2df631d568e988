// SPDX-License-Identifier: Apache-2.0
#include "tests/infer/sched/simulation_options.h"

#include <gtest/gtest.h>

namespace hone::test {
namespace {

TEST(SchedulerSimulation, random_events_break_no_invariant) {
  for (const Scenario& scenario : scenarios()) {
    SCOPED_TRACE(scenario.name);
    Simulation simulation(scenario.options, 1);
    ASSERT_NO_THROW(simulation.run(100'000 / static_cast<Index>(scenarios().size())));
    expect_coverage(simulation, scenario);
  }
}

TEST(SchedulerSimulation, equal_events_give_equal_counters) {
  const Scenario scenario = scenarios()[1];  // with little memory
  Simulation first(scenario.options, 1), second(scenario.options, 1);
  first.run(20'000);
  second.run(20'000);
  const auto a = first.scheduler().counters(), b = second.scheduler().counters();
  EXPECT_GT(a.finished, 0);
  EXPECT_GT(a.preemptions, 0);
  EXPECT_GT(a.cached_tokens, 0);
  EXPECT_EQ(a.finished, b.finished);
  EXPECT_EQ(a.preemptions, b.preemptions);
  EXPECT_EQ(a.cached_tokens, b.cached_tokens);
}

}  // namespace
}  // namespace hone::test
