// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/infer/sched/simulation_options.h"

namespace hone::test {
namespace {

TEST(SchedulerSimulation, a_million_random_events_break_no_invariant) {
  constexpr std::uint64_t kSeeds = 10;
  const auto all = scenarios();
  for (const Scenario& scenario : all) {
    for (std::uint64_t seed = 200; seed < 200 + kSeeds; ++seed) {
      SCOPED_TRACE(concat(scenario.name, ", seed ", seed));
      Simulation simulation(scenario.options, seed);
      ASSERT_NO_THROW(simulation.run(1'000'000 / static_cast<Index>(kSeeds * all.size())));
      expect_coverage(simulation, scenario);
    }
  }
}

}  // namespace
}  // namespace hone::test
