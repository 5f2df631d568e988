// SPDX-License-Identifier: Apache-2.0
// The choice of a frozen layer's form, with scripted times.
#include "hone/train/sketch/freeze.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/train/scripted_measurer.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using hone::test::ScriptedMeasurer;
using test::relative;
using test::seeded_normal;
using torch::Tensor;

FactoredLinear gelu_layer(Index rank) {
  FactoredLinearOptions options;
  options.in_features = 96;
  options.out_features = 64;
  options.rank = rank;
  options.mode = FactorMode::LowRank;
  options.epilogue = {Activation::Gelu, 0.5};
  FactoredLinear layer = test::seeded_layer(options, 1);
  layer->to(at::kFloat);
  return layer;
}

const FreezeTrial* chosen(const FrozenChoice& choice) {
  for (const FreezeTrial& trial : choice.trials) {
    if (trial.is_chosen) return &trial;
  }
  return nullptr;
}

TEST(Freeze, takes_the_fastest_form_within_the_tolerance) {
  FactoredLinear layer = gelu_layer(16);
  const Tensor x = seeded_normal({8, 96}, 3, at::kFloat);
  ScriptedMeasurer measurer;
  measurer.seconds = {{"dense", 0.5}, {"f32", 0.7}, {"bf16", 0.1}, {"int8", 0.05}};
  const auto run = [&](FreezeLevel level, double tolerance) {
    return freeze_measured(layer, x, measurer, {.level = level, .tolerance = tolerance});
  };
  FrozenChoice choice = run(FreezeLevel::Aggressive, 1e-4);
  ASSERT_NE(chosen(choice), nullptr);
  EXPECT_EQ(chosen(choice)->name, "dense");
  for (const FreezeTrial& trial : choice.trials) {
    const bool is_exact = trial.name == "dense" || trial.name == "f32";
    EXPECT_EQ(trial.error <= 1e-4, is_exact) << trial.name;
    EXPECT_FALSE(trial.reason.empty());
  }
  EXPECT_EQ(measurer.timed, (std::vector<std::string>{"unchanged", "dense", "f32"}));
  const Tensor want = layer->forward(x).detach();
  EXPECT_LE(relative(choice.layer.forward(x), want), 1e-5);
  const auto copy = choice.layer.clone();
  EXPECT_LE(relative(torch::nn::AnyModule(copy).forward(x), want), 1e-5);

  choice = run(FreezeLevel::Standard, 2e-2);
  EXPECT_EQ(chosen(choice)->name, "bf16");
  EXPECT_LE(relative(choice.layer.forward(x), want), 2e-2);
  choice = run(FreezeLevel::Aggressive, 2e-2);
  EXPECT_EQ(chosen(choice)->name, "int8");
  EXPECT_LE(relative(choice.layer.forward(x), want), 2e-2);
}

TEST(Freeze, keeps_the_layer_where_nothing_is_surely_faster) {
  FactoredLinear layer = gelu_layer(16);
  const Tensor x = seeded_normal({8, 96}, 3, at::kFloat);
  ScriptedMeasurer measurer;
  measurer.seconds = {{"dense", 0.95}, {"f32", 1.2}};
  measurer.noise = 0.1;
  FrozenChoice choice = freeze_measured(layer, x, measurer);
  EXPECT_EQ(chosen(choice), nullptr);
  EXPECT_FALSE(layer->is_training());
  EXPECT_TRUE(at::equal(choice.layer.forward(x), layer->forward(x)));
  EXPECT_EQ(choice.layer.ptr(), layer.ptr());
}

TEST(Freeze, finds_the_smaller_rank_of_a_layer_that_needs_less) {
  FactoredLinear layer = gelu_layer(32);
  {
    const at::NoGradGuard no_grad;
    Tensor(layer->first()).narrow(0, 5, 27).zero_();
  }
  ScriptedMeasurer measurer;
  measurer.seconds = {{"rank 5", 0.2}};
  const Tensor x = seeded_normal({8, 96}, 3, at::kFloat);
  FrozenChoice choice = freeze_measured(layer, x, measurer);
  ASSERT_NE(chosen(choice), nullptr);
  EXPECT_EQ(chosen(choice)->name, "rank 5");
  EXPECT_LE(relative(choice.layer.forward(x), layer->forward(x)), 1e-5);
}

TEST(Freeze, refuses_an_empty_sample_and_no_tolerance) {
  ScriptedMeasurer measurer;
  FactoredLinear layer = gelu_layer(16);
  EXPECT_NE(refusal([&] { freeze_measured(layer, at::empty({0, 96}), measurer); }), "");
  EXPECT_NE(refusal([&] {
              freeze_measured(layer, at::ones({1, 96}), measurer, {.tolerance = -1});
            }).find("tolerance"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::nn
