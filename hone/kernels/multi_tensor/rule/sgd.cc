// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/sgd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/sgd.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/sgd-inl.h"

#if HWY_ONCE
#include <algorithm>

#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/fused_step.h"
#include "hone/kernels/multi_tensor/group_check.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "sgd_step";

HWY_EXPORT(sgd_keep);
HWY_EXPORT(sgd_unscaled);
HWY_EXPORT(sgd_zero);
HWY_EXPORT(sgdm_keep);
HWY_EXPORT(sgdm_unscaled);
HWY_EXPORT(sgdm_zero);

template <GradWriteBack kGrad>
void update_sgd_plain(const ChunkOperands& chunk, const SGDScalars& s) {
  update_sgd_reference<float>(
      chunk,
      {s.grad_scale, s.l2, s.momentum_keep, s.grad_share, s.look_ahead, s.grad_in_update, s.lr},
      kGrad);
}

class SGDStep final : public StepRule {
 public:
  SGDStep(const MultiTensorPlan& plan, std::span<const SGDGroup> groups, GradWriteBack grad)
      : plan_(plan),
        groups_(groups),
        update_(choose_sgd_update(plan.has_slot(Slot::Momentum), grad)),
        scalars_(static_cast<std::size_t>(plan.tensors())) {}

  void prepare(Index tensor, const TorqueSums&, double grad_scale) override {
    const Index t = plan_.step()[static_cast<std::size_t>(tensor)] + 1;
    scalars_[static_cast<std::size_t>(tensor)] =
        sgd_scalars<float>(groups_[plan_.tensor(tensor).group], t, grad_scale);
  }
  void update(Index tensor, const ChunkOperands& chunk) const override {
    update_(chunk, scalars_[static_cast<std::size_t>(tensor)]);
  }
  Index temporary_bytes() const override {
    return static_cast<Index>(scalars_.size() * sizeof(SGDScalars));
  }

 private:
  const MultiTensorPlan& plan_;
  std::span<const SGDGroup> groups_;
  UpdateSGDChunk update_;
  std::vector<SGDScalars> scalars_;
};

}  // namespace

void check_sgd_group(const SGDGroup& group) {
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "momentum", group.momentum);
  HONE_CHECK(std::isfinite(group.dampening), kOp, "finite dampening", group.dampening);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
  HONE_CHECK(!group.nesterov || (group.momentum > 0 && group.dampening == 0), kOp,
             "momentum above 0 and no dampening with nesterov",
             concat("momentum ", group.momentum, ", dampening ", group.dampening));
}

UpdateSGDChunk choose_sgd_update(bool has_momentum, GradWriteBack grad) {
  const bool reference = wants_reference();
  switch (grad) {
    case GradWriteBack::None:
      if (reference) return update_sgd_plain<GradWriteBack::None>;
      return has_momentum ? HWY_DYNAMIC_DISPATCH(sgdm_keep) : HWY_DYNAMIC_DISPATCH(sgd_keep);
    case GradWriteBack::Unscaled:
      if (reference) return update_sgd_plain<GradWriteBack::Unscaled>;
      return has_momentum ? HWY_DYNAMIC_DISPATCH(sgdm_unscaled)
                          : HWY_DYNAMIC_DISPATCH(sgd_unscaled);
    case GradWriteBack::Zero:
      break;
  }
  if (reference) return update_sgd_plain<GradWriteBack::Zero>;
  return has_momentum ? HWY_DYNAMIC_DISPATCH(sgdm_zero) : HWY_DYNAMIC_DISPATCH(sgd_zero);
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
  SGDStep rule(plan, groups, control.grad);
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
#endif
