// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/tam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/tam.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/tam-inl.h"

#if HWY_ONCE
#include <algorithm>

#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/fused_step.h"
#include "hone/kernels/multi_tensor/group_check.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "tam_step";

HWY_EXPORT(tam_keep);
HWY_EXPORT(tam_unscaled);
HWY_EXPORT(tam_zero);
HWY_EXPORT(adatam_keep);
HWY_EXPORT(adatam_unscaled);
HWY_EXPORT(adatam_zero);

template <GradWriteBack kGrad>
void update_tam_plain(const ChunkOperands& chunk, const TAMScalars& s) {
  update_tam_reference<float>(
      chunk, {s.grad_scale, s.l2, s.momentum_keep, s.damping, s.lr, s.keep, s.square_share, s.eps},
      kGrad);
}

double smooth(const TAMGroup& group, double correlation, double cosine) {
  return group.decay_rate * correlation + (1 - group.decay_rate) * cosine;
}

class TAMStep final : public StepRule {
 public:
  TAMStep(const MultiTensorPlan& plan, std::span<const TAMGroup> groups, TAMScope scope,
          std::span<double> correlation, GradWriteBack grad)
      : plan_(plan),
        groups_(groups),
        scope_(scope),
        correlation_(correlation),
        update_(choose_tam_update(plan.has_slot(Slot::SecondMoment), grad)),
        tensors_(static_cast<std::size_t>(plan.tensors())) {}

  Statistics statistics() const override {
    const bool decay = std::any_of(groups_.begin(), groups_.end(), [](const TAMGroup& group) {
      return !group.decoupled && group.weight_decay > 0;
    });
    return decay ? Statistics::TorqueWithDecay : Statistics::Torque;
  }

  bool needs_all_sums() const override { return scope_ == TAMScope::Model; }
  void prepare_all(SumsOf sums_of, double grad_scale) override {
    if (plan_.tensors() == 0) return;
    Torque total;
    for (Index i = 0; i < plan_.tensors(); ++i) {
      const Torque part = effective_torque(sums_of(i), grad_scale, group_of(i));
      total.mg += part.mg;
      total.mm += part.mm;
      total.gg += part.gg;
    }
    model_correlation_ = smooth(groups_.front(), correlation_.front(),
                                torque_cosine(total, groups_.front(), CosineGuard::Clamp));
  }

  void prepare(Index tensor, const TorqueSums& sums, double grad_scale) override {
    const TAMGroup& group = group_of(tensor);
    double correlation = model_correlation_;
    if (scope_ == TAMScope::Tensor) {
      const Torque torque = effective_torque(sums, grad_scale, group);
      correlation = smooth(group, correlation_[static_cast<std::size_t>(tensor)],
                           torque_cosine(torque, group, group.guard));
    }
    tensors_[static_cast<std::size_t>(tensor)] = {
        correlation, tam_scalars<float>(group, correlation, grad_scale)};
  }
  void update(Index tensor, const ChunkOperands& chunk) const override {
    update_(chunk, tensors_[static_cast<std::size_t>(tensor)].scalars);
  }
  void commit() override {
    if (tensors_.empty()) return;
    if (scope_ == TAMScope::Model) correlation_.front() = model_correlation_;
    for (std::size_t i = 0; scope_ == TAMScope::Tensor && i < tensors_.size(); ++i) {
      correlation_[i] = tensors_[i].correlation;
    }
  }
  Index temporary_bytes() const override {
    return static_cast<Index>(tensors_.size() * sizeof(TensorState));
  }

 private:
  struct TensorState {
    double correlation;  // the new s
    TAMScalars scalars;
  };

  const TAMGroup& group_of(Index tensor) const { return groups_[plan_.tensor(tensor).group]; }

  const MultiTensorPlan& plan_;
  std::span<const TAMGroup> groups_;
  TAMScope scope_;
  std::span<double> correlation_;
  UpdateTAMChunk update_;
  std::vector<TensorState> tensors_;
  double model_correlation_ = 0;
};

}  // namespace

void check_tam_group(const TAMGroup& group) {
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "momentum", group.momentum);
  check_decay(kOp, "decay_rate", group.decay_rate);
  check_decay(kOp, "beta2", group.beta2);
  check_at_least_zero(kOp, "eps", group.eps);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
  check_at_least_zero(kOp, "eps_norm", group.eps_norm);
  check_at_least_zero(kOp, "eps_corr", group.eps_corr);
}

UpdateTAMChunk choose_tam_update(bool adaptive, GradWriteBack grad) {
  const bool reference = wants_reference();
  switch (grad) {
    case GradWriteBack::None:
      if (reference) return update_tam_plain<GradWriteBack::None>;
      return adaptive ? HWY_DYNAMIC_DISPATCH(adatam_keep) : HWY_DYNAMIC_DISPATCH(tam_keep);
    case GradWriteBack::Unscaled:
      if (reference) return update_tam_plain<GradWriteBack::Unscaled>;
      return adaptive ? HWY_DYNAMIC_DISPATCH(adatam_unscaled) : HWY_DYNAMIC_DISPATCH(tam_unscaled);
    case GradWriteBack::Zero:
      break;
  }
  if (reference) return update_tam_plain<GradWriteBack::Zero>;
  return adaptive ? HWY_DYNAMIC_DISPATCH(adatam_zero) : HWY_DYNAMIC_DISPATCH(tam_zero);
}

StepReport tam_step(const MultiTensorPlan& plan, std::span<const TAMGroup> groups, TAMScope scope,
                    std::span<double> correlation, const StepControl& control, Executor& executor) {
  for (const TAMGroup& group : groups) check_tam_group(group);
  check_group_numbers(kOp, plan, groups.size());
  check_slot(kOp, plan, Slot::Momentum, "momentum", true);
  check_slot(kOp, plan, Slot::Extra, "extra", false);
  const Index wanted = scope == TAMScope::Model ? 1 : plan.tensors();
  HONE_CHECK(static_cast<Index>(correlation.size()) == wanted, kOp,
             concat(wanted, " correlation values"), correlation.size());
  TAMStep rule(plan, groups, scope, correlation, control.grad);
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
#endif
