// SPDX-License-Identifier: Apache-2.0
#include "hone/measure/pareto.h"

#include <gtest/gtest.h>

#include "hone/core/error.h"

namespace hone::measure {
namespace {

Objective exact(double value) { return {value, value, value}; }

TEST(ParetoFront, keeps_what_nobody_beats) {
  const std::vector<std::vector<Objective>> candidates{{exact(1), exact(5)},
                                                       {exact(2), exact(3)},
                                                       {exact(3), exact(4)},
                                                       {exact(5), exact(1)},
                                                       {exact(2), exact(3)}};
  EXPECT_EQ(pareto_front(candidates), (std::vector<Index>{0, 1, 3, 4}));
}

TEST(ParetoFront, overlapping_intervals_do_not_dominate) {
  const std::vector<std::vector<Objective>> candidates{{exact(1), {2.0, 1.9, 2.1}},
                                                       {exact(1), {2.05, 1.95, 2.15}},
                                                       {exact(1), {3.0, 2.9, 3.1}},
                                                       {exact(2), {2.0, 1.9, 2.1}}};
  EXPECT_EQ(pareto_front(candidates), (std::vector<Index>{0, 1}));
}

TEST(ParetoFront, refuses_rows_of_different_lengths) {
  const std::vector<std::vector<Objective>> candidates{{exact(1)}, {exact(1), exact(2)}};
  EXPECT_THROW(pareto_front(candidates), Error);
  EXPECT_TRUE(pareto_front({}).empty());
}

}  // namespace
}  // namespace hone::measure
