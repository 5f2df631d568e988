// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/adagrad.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/adagrad.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/adagrad_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// HWY_EXPORT takes plain names.
void update_adagrad(const ChunkOperands& chunk, const AdagradScalars& scalars) {
  for_each_vector(chunk, AdagradRule{scalars});
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

constexpr std::string_view kOp = "adagrad_step";

HWY_EXPORT(update_adagrad);

void update_adagrad_plain(const ChunkOperands& chunk, const AdagradScalars& s) {
  update_adagrad_reference<float>(chunk, {s.grad_scale, s.l2, s.lr, s.eps});
}

}  // namespace

UpdateAdagradChunk choose_adagrad_update() {
  return wants_reference() ? update_adagrad_plain : HWY_DYNAMIC_DISPATCH(update_adagrad);
}

StepReport adagrad_step(const MultiTensorPlan& plan, std::span<const AdagradGroup> groups,
                        const StepControl& control, Executor& executor) {
  for (const AdagradGroup& group : groups) check_adagrad_group(group);
  check_group_numbers(kOp, plan, groups.size());
  check_slot(kOp, plan, Slot::Momentum, "momentum", false);
  check_slot(kOp, plan, Slot::SecondMoment, "second_moment", true);
  check_slot(kOp, plan, Slot::Extra, "extra", false);
  ElementwiseStep<AdagradGroup, AdagradScalars> rule(plan, groups, adagrad_scalars<float>,
                                                     choose_adagrad_update());
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
#endif
