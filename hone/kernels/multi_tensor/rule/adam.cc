// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/adam.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/adam-inl.h"

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/fused_step.h"
#include "hone/kernels/multi_tensor/group_check.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "adam_step";

HWY_EXPORT(adam_keep);
HWY_EXPORT(adam_unscaled);
HWY_EXPORT(adam_zero);
HWY_EXPORT(amsgrad_keep);
HWY_EXPORT(amsgrad_unscaled);
HWY_EXPORT(amsgrad_zero);

template <GradWriteBack kGrad>
void update_adam_plain(const ChunkOperands& chunk, const AdamScalars& s) {
  update_adam_reference<float>(chunk,
                               {s.grad_scale, s.l2, s.keep, s.mean_share, s.square_share,
                                s.step_size, s.inverse_root_correction, s.eps},
                               kGrad);
}

class AdamStep final : public StepRule {
 public:
  AdamStep(const MultiTensorPlan& plan, std::span<const AdamGroup> groups, GradWriteBack grad)
      : plan_(plan),
        groups_(groups),
        update_(choose_adam_update(plan.has_slot(Slot::Extra), grad)),
        scalars_(static_cast<std::size_t>(plan.tensors())) {}

  void prepare(Index tensor, const TorqueSums&, double grad_scale) override {
    const Index t = plan_.step()[static_cast<std::size_t>(tensor)] + 1;
    const std::uint16_t group = plan_.tensor(tensor).group;
    // Neighbours mostly share group and step: logarithms once.
    if (tensor > 0 && known_t_ == t && known_group_ == group && known_scale_ == grad_scale) {
      scalars_[tensor] = scalars_[tensor - 1];
      return;
    }
    scalars_[tensor] = adam_scalars<float>(groups_[group], t, grad_scale);
    known_t_ = t;
    known_group_ = group;
    known_scale_ = grad_scale;
  }
  void update(Index tensor, const ChunkOperands& chunk) const override {
    update_(chunk, scalars_[static_cast<std::size_t>(tensor)]);
  }
  Index temporary_bytes() const override {
    return static_cast<Index>(scalars_.size() * sizeof(AdamScalars));
  }

 private:
  const MultiTensorPlan& plan_;
  std::span<const AdamGroup> groups_;
  UpdateAdamChunk update_;
  std::vector<AdamScalars> scalars_;
  Index known_t_ = 0;
  std::uint16_t known_group_ = 0;
  double known_scale_ = 0;
};

}  // namespace

void check_adam_group(const AdamGroup& group) {
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "beta1", group.beta1);
  check_decay(kOp, "beta2", group.beta2);
  check_at_least_zero(kOp, "eps", group.eps);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
}

UpdateAdamChunk choose_adam_update(bool amsgrad, GradWriteBack grad) {
  const bool reference = wants_reference();
  switch (grad) {
    case GradWriteBack::None:
      if (reference) return update_adam_plain<GradWriteBack::None>;
      return amsgrad ? HWY_DYNAMIC_DISPATCH(amsgrad_keep) : HWY_DYNAMIC_DISPATCH(adam_keep);
    case GradWriteBack::Unscaled:
      if (reference) return update_adam_plain<GradWriteBack::Unscaled>;
      return amsgrad ? HWY_DYNAMIC_DISPATCH(amsgrad_unscaled) : HWY_DYNAMIC_DISPATCH(adam_unscaled);
    case GradWriteBack::Zero:
      break;
  }
  if (reference) return update_adam_plain<GradWriteBack::Zero>;
  return amsgrad ? HWY_DYNAMIC_DISPATCH(amsgrad_zero) : HWY_DYNAMIC_DISPATCH(adam_zero);
}

StepReport adam_step(const MultiTensorPlan& plan, std::span<const AdamGroup> groups,
                     const StepControl& control, Executor& executor) {
  for (const AdamGroup& group : groups) {
    check_adam_group(group);
    HONE_CHECK(group.amsgrad == groups.front().amsgrad, kOp, "amsgrad for all groups or none",
               "both");
  }
  check_group_numbers(kOp, plan, groups.size());
  check_slot(kOp, plan, Slot::Momentum, "momentum", true);
  check_slot(kOp, plan, Slot::SecondMoment, "second_moment", true);
  check_slot(kOp, plan, Slot::Extra, "extra", !groups.empty() && groups.front().amsgrad);
  AdamStep rule(plan, groups, control.grad);
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
#endif
