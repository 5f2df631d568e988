// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/lion.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/lion.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/lion_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// HWY_EXPORT takes plain names.
void update_lion(const ChunkOperands& chunk, const LionScalars& scalars) {
  for_each_vector(chunk, LionRule{scalars});
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/rule/elementwise_step.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "lion_step";

HWY_EXPORT(update_lion);

void update_lion_plain(const ChunkOperands& chunk, const LionScalars& s) {
  update_lion_reference<float>(chunk, {s.grad_scale, s.keep, s.update_share, s.mean_share, s.lr});
}

}  // namespace

UpdateLionChunk choose_lion_update() {
  return wants_reference() ? update_lion_plain : HWY_DYNAMIC_DISPATCH(update_lion);
}

StepReport lion_step(const MultiTensorPlan& plan, std::span<const LionGroup> groups,
                     const StepControl& control, Executor& executor) {
  for (const LionGroup& group : groups) check_lion_group(group);
  check_group_numbers(kOp, plan, groups.size());
  check_slot(kOp, plan, Slot::Momentum, "momentum", true);
  check_slot(kOp, plan, Slot::SecondMoment, "second_moment", false);
  check_slot(kOp, plan, Slot::Extra, "extra", false);
  ElementwiseStep<LionGroup, LionScalars> rule(plan, groups, lion_scalars<float>,
                                               choose_lion_update());
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
#endif
