// SPDX-License-Identifier: Apache-2.0
// What lies between the passes: step counters, correlations, scalars per tensor.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cuda/emulated_step.h"
#include "tests/kernels/cuda/rule_cases.h"

namespace hone::kernels::cuda {
namespace {

using namespace test;
using hone::test::same_bits;

struct TAMState {
  Control control = {};
  std::vector<TAMGroup> groups = {};
  std::vector<std::uint16_t> group_of = {0, 1};
  std::vector<Index> step = {0, 41};
  std::vector<double> correlation = {0.5, -0.25};
  std::vector<TAMScalars> scalars = std::vector<TAMScalars>(2);

  PrepareArguments<RulePolicy<TAMGroup, scalar_rule::AdaTAMRule>> arguments(bool model_scope) {
    return {&control,           groups.data(),  group_of.data(), step.data(),
            correlation.data(), scalars.data(), model_scope};
  }
};

const TorqueSums kAligned{.gg = 4, .mg = 2, .mm = 1};  // S = 1

TEST(Prepare, every_tensor_takes_its_group_its_step_and_its_correlation) {
  const TAMGroup first{.lr = 0.1, .decay_rate = 0.75, .guard = CosineGuard::Clamp};
  TAMGroup second = first;
  second.lr = 0.2;
  second.bias_correction = true;
  TAMState state{.groups = {first, second}};
  for (const Index i : {0, 1}) prepare_tensor(state.arguments(false), i, kAligned);
  EXPECT_EQ(state.step, (std::vector<Index>{1, 42}));
  EXPECT_EQ(state.correlation, (std::vector<double>{0.75 * 0.5 + 0.25, 0.75 * -0.25 + 0.25}));
  const auto wanted = make_scalars(second, state.correlation[1], 42, 1);
  EXPECT_EQ(state.scalars[1].lr, wanted.lr);
  EXPECT_EQ(state.scalars[1].grad_share, wanted.grad_share);
  EXPECT_NE(state.scalars[0].lr, wanted.lr);
}

TEST(Prepare, model_scope_hands_every_tensor_the_same_correlation) {
  TAMState state{.groups = {TAMGroup{}, TAMGroup{}}};
  state.control.results.model_correlation = 0.125;
  for (const Index i : {0, 1}) prepare_tensor(state.arguments(true), i, kAligned);
  EXPECT_EQ(state.scalars[0].grad_share, static_cast<float>(1e-8 + 1.125 / 2));
  EXPECT_EQ(state.scalars[1].grad_share, state.scalars[0].grad_share);
  EXPECT_EQ(state.correlation, (std::vector<double>{0.5, -0.25}));  // not theirs to write
  const auto group = TAMGroup{.decay_rate = 0.5};
  EXPECT_EQ(model_correlation(group, 0.5, {.mg = 2, .mm = 1, .gg = 4}), 0.75);
  const auto fixed = TAMGroup{.fixed_damping = 0.3};
  EXPECT_EQ(model_correlation(fixed, 0.5, {.mg = 2, .mm = 1, .gg = 4}), 0.5);
}

TEST(Prepare, fixed_damping_leaves_the_correlation_alone) {
  const TAMGroup fixed{.fixed_damping = 0.75};
  TAMState state{.groups = {fixed, fixed}};
  prepare_tensor(state.arguments(false), 0, kAligned);
  EXPECT_EQ(state.correlation[0], 0.5);
  EXPECT_EQ(state.scalars[0].grad_share, static_cast<float>(1e-8 + 0.75));
}

TEST(Prepare, a_skipped_step_advances_nothing) {
  TAMState state{.groups = {TAMGroup{}, TAMGroup{}}};
  state.control.results.skip = 1;
  for (const Index i : {0, 1}) prepare_tensor(state.arguments(false), i, kAligned);
  EXPECT_EQ(state.step, (std::vector<Index>{0, 41}));
  EXPECT_EQ(state.correlation, (std::vector<double>{0.5, -0.25}));
  EXPECT_EQ(state.scalars[0].lr, 0);
}

// A loss scale that is a power of two changes no bit.
TEST(DeviceScale, powers_of_two_change_no_bit) {
  const auto run = [](float scale) {
    TensorSet set({3000, 7}, {.second_moment = true, .scale = scale});
    EmulatedStepper<RulePolicy<TAMGroup, scalar_rule::AdaTAMRule>> stepper{
        .groups = {TAMGroup{.guard = CosineGuard::Clamp}}};
    stepper.control.values = {.inv_scale = 1.0 / scale, .skip_nonfinite = true};
    for (Index t = 1; t <= 5; ++t) {
      set.set_step(t);
      stepper.step<AllSlots>(set.plan(), 1024);
    }
    return std::pair(set.snapshot(), stepper.correlation);
  };
  const auto plain = run(1);
  for (const int power : {-20, -1, 8, 20}) {
    const auto scaled = run(std::ldexp(1.0f, power));
    EXPECT_TRUE(same_bits(scaled.first, plain.first)) << power;
    EXPECT_EQ(scaled.second, plain.second) << power;
  }
}

// The sums over raw gradients give the cosine against k g + λ p.
TEST(DeviceScale, decay_and_clip_equal_the_effective_gradient_made_beforehand) {
  const TAMGroup decayed{.lr = 0.01, .weight_decay = 0.1}, bare{.lr = 0.01};
  TensorSet set({5000}), made({5000});
  EmulatedStepper<RulePolicy<TAMGroup, scalar_rule::TAMRule>> fused{.groups = {decayed}},
      apart{.groups = {bare}};
  fused.control.values = {.inv_scale = 0.5, .clip_norm = 3};
  for (Index t = 1; t <= 10; ++t) {
    set.set_step(t);
    made.set_step(t);
    double total = 0;
    for (const float g : set.grad(0)) total += static_cast<double>(g) * g;
    const double norm = 0.5 * std::sqrt(total), k = 0.5 * std::min(1.0, 3 / (norm + 1e-6));
    std::vector<float> raw(made.grad(0).begin(), made.grad(0).end());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      made.grad(0)[i] = static_cast<float>(k * raw[i] + 0.1 * made.param[0][i]);
    }
    fused.step<AllSlots>(set.plan(), 1024);
    apart.step<AllSlots>(made.plan(), 1024);
    std::ranges::copy(raw, made.grad(0).begin());
    EXPECT_NEAR(fused.control.results.grad_norm, norm, 1e-9 * norm);
    EXPECT_NEAR(fused.correlation[0], apart.correlation[0], 1e-6) << t;
  }
  for (std::size_t i = 0; i < 5000; ++i) ASSERT_NEAR(set.param[0][i], made.param[0][i], 1e-6) << i;
}

}  // namespace
}  // namespace hone::kernels::cuda
