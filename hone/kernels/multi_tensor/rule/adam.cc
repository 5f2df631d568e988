// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/adam.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/adam_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// HWY_EXPORT takes plain names.
void update_adam(const ChunkOperands& chunk, const AdamScalars& scalars) {
  for_each_vector(chunk, AdamRule<false>{scalars});
}
void update_amsgrad(const ChunkOperands& chunk, const AdamScalars& scalars) {
  for_each_vector(chunk, AdamRule<true>{scalars});
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

constexpr std::string_view kOp = "adam_step";

HWY_EXPORT(update_adam);
HWY_EXPORT(update_amsgrad);

void update_adam_plain(const ChunkOperands& chunk, const AdamScalars& s) {
  update_adam_reference<float>(chunk, {s.grad_scale, s.l2, s.keep, s.mean_share, s.square_share,
                                       s.step_size, s.inverse_root_correction, s.eps});
}

}  // namespace

UpdateAdamChunk choose_adam_update(bool amsgrad) {
  if (wants_reference()) return update_adam_plain;
  return amsgrad ? HWY_DYNAMIC_DISPATCH(update_amsgrad) : HWY_DYNAMIC_DISPATCH(update_adam);
}

StepReport adam_step(const MultiTensorPlan& plan, std::span<const AdamGroup> groups,
                     const StepControl& control, Executor& executor) {
  for (const AdamGroup& group : groups) {
    check_adam_group(group);
    HONE_CHECK(group.amsgrad == groups.front().amsgrad, kOp, "amsgrad for all groups or none",
               "both");
  }
  const bool amsgrad = !groups.empty() && groups.front().amsgrad;
  check_group_numbers(kOp, plan, groups.size());
  check_slot(kOp, plan, Slot::Momentum, "momentum", true);
  check_slot(kOp, plan, Slot::SecondMoment, "second_moment", true);
  check_slot(kOp, plan, Slot::Extra, "extra", amsgrad);
  ElementwiseStep<AdamGroup, AdamScalars> rule(plan, groups, adam_scalars<float>,
                                               choose_adam_update(amsgrad));
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
#endif
