// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/layout/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "hone/core/error.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/multi_tensor/matches.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"
#include "tests/support/error_of.h"

namespace hone::kernels {
namespace {

using hone::test::error_of;
using test::same_bits;
using test::TensorSet;

TEST(Plan, small_tensors_share_a_unit_and_large_ones_are_cut_in_chunks) {
  TensorSet set({100, 16'384 * 2 + 5, 100, 200});
  const MultiTensorPlan plan = set.plan();
  EXPECT_EQ(plan.chunks(), 6);
  EXPECT_EQ(plan.elements(), 16'384 * 2 + 405);
  ASSERT_EQ(plan.units().size(), 5u);  // [100] [chunk] [chunk] [5] [100 200]
  EXPECT_TRUE(plan.units()[0].whole);
  EXPECT_FALSE(plan.units()[1].whole);
  EXPECT_FALSE(plan.units()[3].whole);
  EXPECT_TRUE(plan.units()[4].whole);
  EXPECT_EQ(plan.units()[4].end - plan.units()[4].begin, 2);
}

TEST(Plan, follows_moved_gradients_and_notices_everything_else) {
  TensorSet set({100, 40'000});
  MultiTensorPlan plan = set.plan();
  EXPECT_TRUE(matches(plan, set.lists()));
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::None);
  set.set_step(1);
  EXPECT_FALSE(matches(plan, set.lists()));
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::Gradients);
  EXPECT_TRUE(matches(plan, set.lists()));
  set.view_of(Slot::Grad, 1).shape = Shape{200, 200};
  set.view_of(Slot::Grad, 1).strides = Shape{200, 1};
  EXPECT_THROW(plan.follow_or_throw(set.lists()), Error);  // a gradient of another shape
  set.set_step(2);
  for (const Slot slot : {Slot::Param, Slot::Grad, Slot::Momentum}) {
    set.view_of(slot, 1).shape = Shape{39'000};
  }
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::Rebuilt);
  EXPECT_EQ(plan.elements(), 39'100);
  set.group[0] = 1;
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::Rebuilt);
}

TEST(Plan, a_gradient_moved_onto_a_parameter_is_refused) {
  TensorSet set({100, 4000});
  MultiTensorPlan plan = set.plan();
  set.view_of(Slot::Grad, 0).data = set.param[1].data() + 10;
  EXPECT_THAT(error_of([&] { plan.follow_or_throw(set.lists()); }),
              testing::HasSubstr("shared with"));
}

TEST(PlanHostile, lists_of_different_length) {
  TensorSet set({10, 20});
  MultiTensorLists lists = set.lists();
  lists.grad = lists.grad.first(1);
  EXPECT_THAT(error_of([&] { MultiTensorPlan::build_or_throw(lists); }),
              testing::HasSubstr("2 tensors in list grad, got 1"));
  lists = set.lists();
  lists.step = lists.step.first(1);
  EXPECT_THAT(error_of([&] { MultiTensorPlan::build_or_throw(lists); }),
              testing::HasSubstr("2 step counters"));
}

TEST(PlanHostile, other_types_and_shapes) {
  TensorSet set({10, 20});
  set.view_of(Slot::Momentum, 1).dtype = Dtype::Float16;
  EXPECT_THAT(error_of([&] { set.plan(); }), testing::HasSubstr("momentum of tensor 1, got f16"));
  set.set_step(0);
  set.view_of(Slot::Grad, 0).shape = Shape{9};
  EXPECT_THAT(error_of([&] { set.plan(); }), testing::HasSubstr("grad of tensor 0 of shape [10]"));
}

TEST(PlanHostile, a_tensor_listed_twice_or_overlapping) {
  TensorSet set({100, 100});
  set.view_of(Slot::Param, 1).data = set.param[0].data();
  EXPECT_THAT(error_of([&] { set.plan(); }), testing::HasSubstr("shared with"));
  set.set_step(0);
  set.view_of(Slot::Momentum, 1).data = set.param[0].data() + 50;
  EXPECT_THAT(error_of([&] { set.plan(); }), testing::HasSubstr("shared with"));
  set.set_step(0);
  set.view_of(Slot::Param, 0).strides = Shape{0};
  EXPECT_THAT(error_of([&] { set.plan(); }), testing::HasSubstr("tensor 0"));
}

TEST(PlanHostile, expanded_or_shared_gradients_can_be_read_but_not_written) {
  TensorSet set({100, 100}, {.momentum = false});
  set.view_of(Slot::Grad, 0).strides = Shape{0};
  set.view_of(Slot::Grad, 1).data = set.grad(0).data();
  const SGDGroup group{.lr = 0.5};
  const MultiTensorPlan plan = set.plan();
  const float before = set.param[0][99], g = set.grad(0)[0];
  sgd_step(plan, {&group, 1}, {}, serial_executor());
  EXPECT_FLOAT_EQ(set.param[0][99], before - 0.5f * g);
  const auto kept = set.snapshot();
  EXPECT_THAT(error_of([&] {
                sgd_step(plan, {&group, 1}, {.grad = GradWriteBack::Zero}, serial_executor());
              }),
              testing::HasSubstr("grad of tensor 0"));
  EXPECT_TRUE(same_bits(set.snapshot(), kept));
}

TEST(PlanHostile, interleaved_views_are_legal) {
  TensorSet set({100, 100}, {.momentum = false});
  // Columns 0 and 1 of one [100, 2] matrix.
  std::vector<float> matrix(200, 1.0f);
  for (int i = 0; i < 2; ++i) {
    set.view_of(Slot::Param, i) =
        TensorView(matrix.data() + i, Dtype::Float32, Shape{100}, Shape{2});
  }
  const SGDGroup group{.lr = 1};
  sgd_step(set.plan(), {&group, 1}, {}, serial_executor());
  EXPECT_EQ(matrix[7], 1 - set.grad(1)[3]);
}

TEST(PlanHostile, settings_without_meaning_name_their_field_and_change_nothing) {
  TensorSet set({100}, {.second_moment = true});
  const MultiTensorPlan plan = set.plan();
  const auto before = set.snapshot();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto adam = [&](const AdamGroup& group, const StepControl& control = {}) {
    return error_of([&] { adam_step(plan, {&group, 1}, control, serial_executor()); });
  };
  EXPECT_THAT(adam({.lr = nan}), testing::HasSubstr("lr"));
  EXPECT_THAT(adam({.lr = -1}), testing::HasSubstr("lr"));
  EXPECT_THAT(adam({.beta1 = 1}), testing::HasSubstr("beta1 in [0, 1)"));
  EXPECT_THAT(adam({.beta2 = nan}), testing::HasSubstr("beta2"));
  EXPECT_THAT(adam({.eps = -1}), testing::HasSubstr("eps"));
  EXPECT_THAT(adam({.weight_decay = -1}), testing::HasSubstr("weight_decay"));
  EXPECT_THAT(adam({.amsgrad = true}), testing::HasSubstr("extra list"));
  EXPECT_THAT(adam({}, {.inv_scale = 0}), testing::HasSubstr("inv_scale"));
  EXPECT_THAT(adam({}, {.clip_norm = nan}), testing::HasSubstr("clip_norm"));
  EXPECT_THAT(error_of([&] { adam_step(plan, {}, {}, serial_executor()); }),
              testing::HasSubstr("a group below 0"));
  EXPECT_TRUE(same_bits(set.snapshot(), before));
  EXPECT_EQ(set.step[0], 0);
}

TEST(PlanHostile, rules_refuse_what_they_cannot_mean) {
  TensorSet set({100});
  const MultiTensorPlan plan = set.plan();
  const SGDGroup nesterov{.momentum = 0.9, .dampening = 0.1, .nesterov = true};
  EXPECT_THAT(error_of([&] {
                sgd_step(plan, {&nesterov, 1}, {}, serial_executor());
              }),
              testing::HasSubstr("nesterov"));
  const TAMGroup tam{.momentum = 1};
  std::vector<double> s(1, 0.0);
  EXPECT_THAT(error_of([&] {
                tam_step(plan, {&tam, 1}, TAMScope::Tensor, s, {}, serial_executor());
              }),
              testing::HasSubstr("momentum in [0, 1)"));
  const TAMGroup good;
  EXPECT_THAT(error_of([&] {
                tam_step(plan, {&good, 1}, TAMScope::Tensor, {}, {}, serial_executor());
              }),
              testing::HasSubstr("1 correlation values"));
}

TEST(Plan, no_tensors_is_a_step_of_nothing) {
  TensorSet set({});
  const AdamGroup group;
  EXPECT_TRUE(adam_step(set.plan(), {&group, 1}, {.clip_norm = 1}, serial_executor()).stepped);
}

}  // namespace
}  // namespace hone::kernels
