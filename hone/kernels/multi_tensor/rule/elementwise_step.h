// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/rule_group.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/kernels/multi_tensor/schedule/fused_step.h"

namespace hone::kernels {

// Steps one chunk by a rule whose scalars are known.
template <class Scalars>
using UpdateChunk = void (*)(const ChunkOperands&, const Scalars&);

// A rule whose scalars depend only on a tensor's group, its step and the scale of gradients.
// Argument-dependent lookup on Group finds make_scalars(group, t, grad_scale).
template <class Group, class Scalars>
class ElementwiseStep final : public StepRule {
 public:
  ElementwiseStep(const MultiTensorPlan& plan, std::span<const Group> groups,
                  std::vector<UpdateChunk<Scalars>> kernels)
      : plan_(plan),
        groups_(groups),
        kernels_(std::move(kernels)),
        scalars_(static_cast<std::size_t>(plan.tensors())) {}

  void prepare(Index tensor, const TorqueSums&, double grad_scale) override {
    const Index t = plan_.step()[static_cast<std::size_t>(tensor)] + 1;
    const std::uint16_t group = plan_.tensor(tensor).group;
    Scalars& own = scalars_[static_cast<std::size_t>(tensor)];
    // Neighbors mostly share group and step, so logarithms are computed once.
    if (tensor > 0 && known_t_ == t && known_group_ == group && known_scale_ == grad_scale) {
      own = scalars_[static_cast<std::size_t>(tensor) - 1];
      return;
    }
    own = make_scalars(groups_[group], t, grad_scale);
    known_t_ = t;
    known_group_ = group;
    known_scale_ = grad_scale;
  }
  void update(Index tensor, const ChunkOperands& chunk, bool) const override {
    kernels_[plan_.tensor(tensor).group](chunk, scalars_[static_cast<std::size_t>(tensor)]);
  }
  bool takes_narrow_moments(Index /*tensor*/) const override { return true; }
  Index temporary_bytes() const override {
    return static_cast<Index>(scalars_.size() * sizeof(Scalars));
  }

 private:
  const MultiTensorPlan& plan_;
  std::span<const Group> groups_;
  std::vector<UpdateChunk<Scalars>> kernels_;  // one per group
  std::vector<Scalars> scalars_;
  Index known_t_ = 0;
  std::uint16_t known_group_ = 0;
  double known_scale_ = 0;
};

// Steps every tensor of the plan. Its step counters advance only if the report says stepped.
// Argument-dependent lookup on Group finds check_group(op, group) and rule_slots(group). The plan
// must have the slots that some group needs, and no others. kernel_of(group) is the kernel of its
// rule. Throws Error{InvalidArgument} that names `op` and the part of plan, groups or control that
// does not fit.
template <class Group, class KernelOf>
StepReport elementwise_step(std::string_view op, const MultiTensorPlan& plan,
                            std::span<const Group> groups, const KernelOf& kernel_of,
                            const StepControl& control, Executor& executor) {
  using Scalars = decltype(make_scalars(groups.front(), 1, 1.0));
  RuleSlots all;
  std::vector<UpdateChunk<Scalars>> kernels;
  for (const Group& group : groups) {
    check_group(op, group);
    all.add(rule_slots(group));
    kernels.push_back(kernel_of(group));
  }
  check_group_numbers(op, plan, groups.size());
  check_slot(op, plan, Slot::Momentum, "momentum", all.momentum);
  check_slot(op, plan, Slot::SecondMoment, "second_moment", all.second_moment);
  check_slot(op, plan, Slot::Extra, "extra", all.extra);
  ElementwiseStep<Group, Scalars> rule(plan, groups, std::move(kernels));
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
