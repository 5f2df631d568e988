// SPDX-License-Identifier: Apache-2.0
// What the kernels compute, run on the host: scalars against the CPU's, sums and updates against
// the double references, for every table, size and alignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/cuda/emulated_step.h"
#include "tests/kernels/cuda/rule_cases.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::cuda {
namespace {

using namespace test;
using hone::test::same_bits;
using kernels::test::kInfinity;

TEST(DeviceNorm, clips_and_skips_as_the_cpu_step_does) {
  const SGDGroup group{.lr = 0.1};
  for (const float bad : {0.0f, kInfinity, kernels::test::kNan}) {
    for (const double inv_scale : {1.0, 0x1p-8}) {
      for (const double clip : {0.0, 1e-3, 1e3}) {
        TensorSet set({50, 0, 70}, {.momentum = false});
        if (bad != 0) set.grad(2)[69] = bad;
        StepControl control{.inv_scale = inv_scale, .clip_norm = clip, .skip_nonfinite = true};
        const StepReport wanted = sgd_step(set.plan(), {&group, 1}, control, serial_executor());
        double total = 0;
        for (const Index i : {0, 2}) {
          for (const float g : set.grad(i)) total += static_cast<double>(g) * g;
        }
        const ControlValues values{
            .inv_scale = inv_scale, .clip_norm = clip, .skip_nonfinite = true};
        const auto got = finish_norm(values, 1, total, std::isfinite(total) ? -1 : 2);
        EXPECT_EQ(got.skip == 0, wanted.stepped);
        EXPECT_EQ(got.first_nonfinite, wanted.first_nonfinite_tensor);
        if (!wanted.stepped) continue;
        EXPECT_NEAR(got.grad_norm, wanted.grad_norm, 1e-12 * wanted.grad_norm);
        EXPECT_NEAR(got.clip_coef, wanted.clip_coef, 1e-12);
        EXPECT_DOUBLE_EQ(got.grad_scale, inv_scale * got.clip_coef);
      }
    }
  }
}

TEST(DeviceNorm, a_loss_scale_on_the_device_divides_and_asks_for_finite_gradients) {
  const float scale = 1;
  const ControlValues values{.inv_scale = 0.5, .loss_scale = &scale};
  EXPECT_TRUE(needs_global_norm(values));
  EXPECT_FALSE(needs_global_norm({}));
  const auto clean = finish_norm(values, 1024, 4, -1);
  EXPECT_EQ(clean.grad_scale, 0.5 / 1024);
  EXPECT_EQ(clean.grad_norm, 2 * 0.5 / 1024);
  EXPECT_EQ(clean.skip, 0);
  EXPECT_EQ(finish_norm(values, 2, 4, 7).skip, 1);
}

template <class Table>
std::vector<double> torque_sums(TensorSet& set, Index chunk) {
  const auto plan = set.plan();
  return gather<Statistics::TorqueWithDecay, float, Table>(WorkList(sizes_of(plan), chunk),
                                                           entries_of(plan));
}

TEST(DeviceGather, sums_are_right_and_do_not_depend_on_alignment_or_table) {
  const std::vector<Index> sizes{0, 1, 5, 1023, 1024, 1025, 4099};
  TensorSet aligned(sizes), shifted(sizes, {.misalign = 1});
  for (Index i = 0; i < aligned.tensors(); ++i) {
    std::ranges::copy(aligned.values(aligned.param, i), shifted.values(shifted.param, i).begin());
    std::ranges::copy(aligned.grad(i), shifted.grad(i).begin());
    // A momentum that is not zero.
    std::ranges::copy(aligned.grad(i), aligned.values(aligned.momentum, i).begin());
    const auto momentum = aligned.values(aligned.momentum, i);
    std::reverse(momentum.begin(), momentum.end());
    std::ranges::copy(aligned.values(aligned.momentum, i),
                      shifted.values(shifted.momentum, i).begin());
  }
  const auto sums = torque_sums<AllSlots>(aligned, 1024);
  EXPECT_EQ(sums, torque_sums<DeviceTable>(aligned, 1024));
  EXPECT_EQ(sums, torque_sums<AllSlots>(shifted, 1024));
  std::size_t block = 0;
  for (Index i = 0; i < aligned.tensors(); ++i) {
    for (Index offset = 0; offset < aligned.size(i); offset += 1024, ++block) {
      double wanted[6];
      gather_reference<float>(
          Statistics::TorqueWithDecay,
          {aligned.values(aligned.param, i).data() + offset, aligned.grad(i).data() + offset,
           aligned.values(aligned.momentum, i).data() + offset, nullptr, nullptr,
           std::min<Index>(1024, aligned.size(i) - offset)},
          wanted);
      for (std::size_t s = 0; s < 6; ++s) {
        EXPECT_NEAR(sums[block * 6 + s], wanted[s], 1e-12 * (1 + wanted[0])) << i << " " << s;
      }
    }
  }
  EXPECT_EQ(block * 6, sums.size());
}

// ---- whole steps ----

const std::vector<Index> kSizes{0, 1, 7, 1023, 1025, 4097};

// All sizes in one list, by both tables.
template <class Policy, class Reference>
void check_rule(const RuleCase<Policy>& rule, Index misalign, const Reference& reference) {
  constexpr Index kRounds = 100;
  TensorSetOptions options = rule.options;
  options.misalign = misalign;
  TensorSet set(kSizes, options), other(kSizes, options);
  EmulatedStepper<Policy> by_structs{.groups = {rule.group}}, by_table = by_structs;
  ReferenceRun run(set, options);
  for (Index t = 1; t <= kRounds; ++t) {
    set.set_step(t);
    other.set_step(t);
    by_structs.template step<AllSlots>(set.plan(), 1024);
    by_table.template step<DeviceTable>(other.plan(), 1024);
    run.step(set, t, reference);
  }
  EXPECT_TRUE(same_bits(set.snapshot(), other.snapshot())) << rule.name;
  EXPECT_EQ(by_structs.correlation, by_table.correlation) << rule.name;
  run.expect_equal(set, kRounds, rule.name);
  EXPECT_EQ(set.step, std::vector<Index>(kSizes.size(), kRounds));
}

TEST(DeviceRules, match_the_double_reference_for_100_steps) {
  for_each_rule_case([](const auto& rule, const auto& reference) {
    check_rule(rule, 0, reference);
    check_rule(rule, 3, reference);
  });
}

TEST(DeviceRules, lion_takes_the_sign_of_the_mixed_momentum) {
  TensorSet set({5});
  const float param[] = {1, 1, 1, 1, 1}, grad[] = {2, -3, 0, 0.5f, -0.25f};
  std::ranges::copy(param, set.values(set.param, 0).begin());
  std::ranges::copy(grad, set.grad(0).begin());
  EmulatedStepper<RulePolicy<LionGroup, scalar_rule::LionRule>> stepper{
      .groups = {{.lr = 0x1p-3, .beta2 = 0.75}}};
  stepper.step<AllSlots>(set.plan(), 1024);
  const float stepped[] = {0.875f, 1.125f, 1, 0.875f, 1.125f};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(set.param[0][i], stepped[i]);
    EXPECT_EQ(set.momentum[0][i], 0.25f * grad[i]);
  }
}

// Constant gradient, step / η of AdaTAM.
TEST(DeviceRules, adatam_on_a_constant_gradient_takes_the_known_steps) {
  TensorSet set({300}, {.second_moment = true});
  EmulatedStepper<RulePolicy<TAMGroup, scalar_rule::AdaTAMRule>> stepper{
      .groups = {TAMGroup{.lr = 1e-4}}};
  std::ranges::fill(set.grad(0), 0.5f);
  std::ranges::fill(set.param[0], 0.0f);
  const std::map<Index, double> wanted{
      {1, 15.811}, {2, 22.366}, {10, 45.864}, {22, 52.943}, {2000, 10.753}};
  for (Index t = 1; t <= 2000; ++t) {
    const double before = set.param[0][299];
    stepper.step<DeviceTable>(set.plan(), 1024);
    const double step = (before - set.param[0][299]) / 1e-4;
    const auto known = wanted.find(t);
    if (known != wanted.end()) {
      EXPECT_NEAR(step, known->second, 0.01) << t;
    }
  }
}

// Gradients in bf16, average and bf16 copy of the parameter, gradients zeroed or unscaled, odd
// alignment: one pass leaves what the passes apart leave.
TEST(DeviceUpdate, average_copy_and_write_back_follow_the_rule) {
  for (const Index misalign : {0, 1}) {
    for (const auto mode : {GradWriteBack::None, GradWriteBack::Unscaled, GradWriteBack::Zero}) {
      constexpr Index kCount = 2055;
      TensorSet set({kCount}, {.second_moment = true}), plain({kCount}, {.second_moment = true});
      std::vector<BF16> grad(kCount + 1), copy(kCount + 1);
      std::vector<float> average(kCount + 1, 0.5f);
      for (std::size_t i = 0; i < kCount; ++i) {
        narrow(plain.grad(0)[i], grad[i + misalign]);
        plain.grad(0)[i] = widen(grad[i + misalign]);
      }
      TensorView views[] = {{grad.data() + misalign, Dtype::BFloat16, Shape{kCount}},
                            {average.data() + misalign, Dtype::Float32, Shape{kCount}},
                            {copy.data() + misalign, Dtype::BFloat16, Shape{kCount}}};
      auto lists = set.lists();
      lists.grad = {&views[0], 1};
      lists.ema = {&views[1], 1};
      lists.copy = {&views[2], 1};
      EmulatedStepper<RulePolicy<AdamGroup, scalar_rule::AdamRule>, BF16> stepper{
          .groups = {{.maximize = true}}};
      stepper.control.values = {.inv_scale = 0.25, .ema_share = 0.125f, .grad = mode};
      EmulatedStepper<RulePolicy<AdamGroup, scalar_rule::AdamRule>> alone{.groups = stepper.groups};
      alone.control.values.inv_scale = 0.25;
      stepper.step<DeviceTable>(MultiTensorPlan::build_or_throw(lists), 1024);
      alone.step<DeviceTable>(plain.plan(), 1024);
      EXPECT_TRUE(same_bits(set.snapshot(), plain.snapshot()));
      for (std::size_t i = 0; i < kCount; ++i) {
        const float p = set.param[0][i], g = plain.grad(0)[i];
        EXPECT_EQ(copy[i + misalign].bits, float_to_bf16(p));
        EXPECT_EQ(average[i + misalign], std::fma(0.125f, p - 0.5f, 0.5f));
        const float left = mode == GradWriteBack::None   ? g
                           : mode == GradWriteBack::Zero ? 0.0f
                                                         : 0.25f * g;
        EXPECT_EQ(widen(grad[i + misalign]), left) << i;
      }
    }
  }
}

TEST(DeviceUpdate, a_skipped_step_leaves_every_bit) {
  TensorSet set({10, 5000}, {.second_moment = true});
  EmulatedStepper<RulePolicy<TAMGroup, scalar_rule::AdaTAMRule>> stepper{.groups = {TAMGroup{}}};
  stepper.step<AllSlots>(set.plan(), 1024);
  const auto before = set.snapshot();
  const auto correlation = stepper.correlation;
  set.grad(1)[4999] = kInfinity;
  stepper.control.values = {.grad = GradWriteBack::Zero, .skip_nonfinite = true};
  stepper.step<AllSlots>(set.plan(), 1024);
  EXPECT_EQ(stepper.control.results.skip, 1);
  EXPECT_EQ(stepper.control.results.first_nonfinite, 1);
  EXPECT_TRUE(same_bits(set.snapshot(), before));
  EXPECT_EQ(stepper.correlation, correlation);
  EXPECT_EQ(set.step, (std::vector<Index>{1, 1}));
  EXPECT_EQ(set.grad(1)[4999], kInfinity);
}

}  // namespace
}  // namespace hone::kernels::cuda
