// SPDX-License-Identifier: Apache-2.0
// What the CUDA step refuses, each by its sentence.
#include "hone/kernels/multi_tensor/cuda/step_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/kernels/cuda/device_info.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels::cuda {
namespace {

using hone::test::TensorSet;
using kernels::test::error_of;
using testing::HasSubstr;

TEST(StepCheck, options_and_control) {
  EXPECT_NO_THROW(check_options({}));
  EXPECT_NO_THROW(check_options({.chunk_elements = 4096, .scope = TAMScope::Model}));
  const auto refused = [](const CudaStepOptions& options) {
    return error_of([&] { check_options(options); });
  };
  EXPECT_THAT(refused({.chunk_elements = 1000}), HasSubstr("power of two"));
  EXPECT_THAT(refused({.chunk_elements = 131072}), HasSubstr("65,536"));
  EXPECT_THAT(refused({.max_launches = -1}), HasSubstr("max_launches"));
  EXPECT_THAT(refused({.scope = TAMScope::Row}), HasSubstr("Model or Tensor"));
  const auto control = [](const StepControl& step) {
    return error_of([&] { check_control({.step = step}); });
  };
  EXPECT_EQ(control({}), "no error");
  EXPECT_THAT(control({.inv_scale = 0}), HasSubstr("inv_scale"));
  EXPECT_THAT(control({.clip_norm = -1}), HasSubstr("clip_norm"));
  EXPECT_THAT(control({.clip_value = 1}), HasSubstr("clip_grad_value_ before the step"));
  EXPECT_THAT(control({.clip_norm = 1, .norm_type = 1}),
              HasSubstr("clip_grad_norm_ before the step"));
  EXPECT_THAT(control({.ema_decay = 2}), HasSubstr("ema_decay"));
  EXPECT_THAT(control({.checked = true}), HasSubstr("checked"));
}

TEST(StepCheck, types_and_layouts_name_the_tensor) {
  TensorSet set({6, 6}, {.momentum = false});
  std::vector<std::uint16_t> halves(64);
  auto& grad = set.view_of(Slot::Grad, 1);
  const auto check = [&] {
    return error_of([&] {
      const auto lists = set.lists();
      check_device_lists(MultiTensorPlan::build_or_throw(lists), lists);
    });
  };
  EXPECT_EQ(check(), "no error");
  const TensorView kept = grad;
  grad = TensorView(halves.data(), Dtype::BFloat16, Shape{6});
  EXPECT_THAT(check(), HasSubstr("one type, f32, bf16 or f16, for grad of tensor 1, got bf16"));
  grad = kept;
  auto& param = set.view_of(Slot::Param, 0);
  param = TensorView(halves.data(), Dtype::BFloat16, Shape{6});
  EXPECT_THAT(check(), HasSubstr("f32 for param of tensor 0, got bf16"));
}

TEST(StepCheck, gradients_of_another_layout_name_the_tensor) {
  std::vector<float> param(6), gradient(6);
  TensorView views[] = {{param.data(), Dtype::Float32, Shape{2, 3}},
                        {gradient.data(), Dtype::Float32, Shape{2, 3}, Shape{1, 2}}};
  const std::uint16_t group[] = {0};
  Index step[] = {0};
  MultiTensorLists lists;
  lists.param = {&views[0], 1};
  lists.grad = {&views[1], 1};
  lists.group = group;
  lists.step = step;
  EXPECT_THAT(error_of([&] { check_device_lists(MultiTensorPlan::build_or_throw(lists), lists); }),
              HasSubstr("one layout in every slot of tensor 0"));
}

TEST(StepCheck, lists_are_those_of_the_rule_and_of_the_first_call) {
  TensorSet set({3}), adam({3}, {.second_moment = true});
  EXPECT_EQ(error_of([&] { check_used_slots(set.lists(), {.momentum = true}); }), "no error");
  EXPECT_THAT(error_of([&] { check_used_slots(set.lists(), {}); }), HasSubstr("no momentum list"));
  EXPECT_THAT(error_of([&] {
                check_used_slots(set.lists(), {true, true, false});
              }),
              HasSubstr("a second_moment list"));
  const ListKind kind = kind_of(set.lists());
  EXPECT_NO_THROW(check_kind(kind, set.lists()));
  EXPECT_NO_THROW(check_kind(kind, {}));
  EXPECT_THAT(error_of([&] { check_kind(kind, adam.lists()); }), HasSubstr("made with"));
}

TEST(CudaStepper, without_cuda_or_device_says_so) {
  if (!query_cuda().devices.empty()) GTEST_SKIP() << "this machine has a device";
  TensorSet set({3}, {.momentum = false});
  try {
    make_cuda_stepper<SGDGroup>(set.lists(), {});
    ADD_FAILURE() << "a stepper without a device";
  } catch (const Error& error) {
    const bool built = query_cuda().is_built;
    EXPECT_EQ(error.category(), built ? ErrorCategory::Device : ErrorCategory::Unsupported);
    EXPECT_THAT(error.what(), HasSubstr(built ? "cudaGetDevice" : "This build has no CUDA"));
  }
}

}  // namespace
}  // namespace hone::kernels::cuda
