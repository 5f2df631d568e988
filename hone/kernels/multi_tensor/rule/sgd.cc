// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/sgd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/sgd.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/sgd_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// HWY_EXPORT takes plain names.
void update_sgd(const ChunkOperands& chunk, const SGDScalars& scalars) {
  for_each_vector(chunk, SGDRule<false>{scalars});
}
void update_sgdm(const ChunkOperands& chunk, const SGDScalars& scalars) {
  for_each_vector(chunk, SGDRule<true>{scalars});
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/rule/elementwise_step.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "sgd_step";

HWY_EXPORT(update_sgd);
HWY_EXPORT(update_sgdm);

void update_sgd_plain(const ChunkOperands& chunk, const SGDScalars& s) {
  update_sgd_reference<float>(chunk, {s.grad_scale, s.l2, s.momentum_keep, s.grad_share,
                                      s.look_ahead, s.grad_in_update, s.lr});
}

}  // namespace

UpdateSGDChunk choose_sgd_update(bool has_momentum) {
  if (wants_reference()) return update_sgd_plain;
  return has_momentum ? HWY_DYNAMIC_DISPATCH(update_sgdm) : HWY_DYNAMIC_DISPATCH(update_sgd);
}

StepReport sgd_step(const MultiTensorPlan& plan, std::span<const SGDGroup> groups,
                    const StepControl& control, Executor& executor) {
  for (const SGDGroup& group : groups) check_sgd_group(group);
  check_group_numbers(kOp, plan, groups.size());
  const bool momentum = std::any_of(groups.begin(), groups.end(),
                                    [](const SGDGroup& group) { return group.momentum > 0; });
  check_slot(kOp, plan, Slot::Momentum, "momentum", momentum);
  check_slot(kOp, plan, Slot::SecondMoment, "second_moment", false);
  check_slot(kOp, plan, Slot::Extra, "extra", false);
  ElementwiseStep<SGDGroup, SGDScalars> rule(plan, groups, sgd_scalars<float>,
                                             choose_sgd_update(momentum));
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
#endif
