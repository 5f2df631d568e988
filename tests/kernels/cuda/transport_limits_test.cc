// SPDX-License-Identifier: Apache-2.0
// A step by each transport's table, run on the host, around the limits of the structs.
#include <gtest/gtest.h>

#include <vector>

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "tests/kernels/cuda/emulated_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels::cuda {
namespace {

using namespace test;
using hone::test::same_bits;
using hone::test::TensorSet;

// The slots of AdamW.
using Small = StructTable<1, kParam, kGrad, kMomentum, kSecondMoment>;
using Large = StructTable<kLargeScale, kParam, kGrad, kMomentum, kSecondMoment>;

std::vector<Index> many(Index count) { return std::vector<Index>(std::size_t(count), 5); }

template <class Table>
std::vector<std::vector<float>> after_two_steps(const std::vector<Index>& sizes) {
  TensorSet set(sizes, {.second_moment = true});
  EmulatedStepper<RulePolicy<AdamGroup, scalar_rule::AdamRule>> stepper{
      .groups = {AdamGroup{.weight_decay = 0.01}}};
  for (Index t = 0; t < 2; ++t) {
    set.set_step(t);
    stepper.step<Table>(set.plan(), 1024);
  }
  EXPECT_EQ(set.step, std::vector<Index>(sizes.size(), 2));
  return set.snapshot();
}

TEST(TransportLimits, steps_are_bit_equal_one_below_at_and_above_them) {
  for (const std::vector<Index>& sizes :
       {many(35), many(36), many(37), many(251), many(252), many(253), many(2000),
        std::vector<Index>{319 * 1024}, std::vector<Index>{320 * 1024},
        std::vector<Index>{320 * 1024 + 1}, std::vector<Index>{1, 2238 * 1024},
        std::vector<Index>{1, 2239 * 1024}, std::vector<Index>{1, 2239 * 1024 + 1},
        std::vector<Index>{0, 3, 0, 1025, 0}}) {
    const auto by_table = after_two_steps<DeviceTable>(sizes);
    EXPECT_TRUE(same_bits(after_two_steps<Small>(sizes), by_table)) << sizes.size();
    EXPECT_TRUE(same_bits(after_two_steps<Large>(sizes), by_table)) << sizes.size();
  }
}

}  // namespace
}  // namespace hone::kernels::cuda
