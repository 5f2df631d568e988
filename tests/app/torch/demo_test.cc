// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/demo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hone::app {
namespace {

DemoResult result_with(std::optional<double> bits, std::optional<double> floor) {
  DemoVariant fp32;
  fp32.name = "fp32";
  fp32.eval.card.bits_per_byte = bits;
  fp32.eval.card.comparison.emplace();
  DemoResult result;
  result.variants.push_back(fp32);
  result.floor_bits_per_byte = floor;
  return result;
}

TEST(DemoResult, states_the_loss_as_a_multiple_of_the_entropy) {
  const DemoResult result = result_with(0.1060, 0.1000);
  EXPECT_NEAR(*floor_ratio(result), 1.06, 1e-12);
  EXPECT_NEAR(to_json(result).at("floor_ratio").get<double>(), 1.06, 1e-12);
  EXPECT_THAT(to_table(result), testing::HasSubstr("1.060 times the entropy of these stories"));
}

TEST(DemoResult, of_a_text_whose_entropy_nobody_knows_states_none) {
  const DemoResult result = result_with(0.1060, std::nullopt);
  EXPECT_FALSE(floor_ratio(result));
  EXPECT_TRUE(to_json(result).at("floor_ratio").is_null());
  EXPECT_THAT(to_table(result), testing::Not(testing::HasSubstr("entropy")));
}

}  // namespace
}  // namespace hone::app
