// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/multi_tensor/cuda/control.h"
#include "hone/kernels/multi_tensor/cuda/float_rule_ops.h"
#include "hone/kernels/multi_tensor/cuda/rule_scalars.h"
#include "hone/kernels/multi_tensor/rule/adagrad_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/adam_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/lion_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/sgd_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/tam_rule-inl.h"

// What the kernels know of a rule: its groups, its scalars, its element-wise formula. A new rule is
// a *_rule-inl.h, a device_scalars() and a line here.
namespace hone::kernels::cuda {

template <class GroupType, class RuleType>
struct ElementwisePolicy {
  using Group = GroupType;
  using DeviceGroup = GroupType;
  using Rule = RuleType;
  using Scalars = decltype(Rule::s);
  static constexpr bool kTorque = false;  // needs ⟨m, g⟩, |m|², |g|² of every tensor
};

template <bool kMomentum>
using SGDPolicy = ElementwisePolicy<SGDGroup, float_rule::SGDRule<kMomentum>>;
template <bool kAmsgrad>
using AdamPolicy = ElementwisePolicy<AdamGroup, float_rule::AdamRule<kAmsgrad>>;
using LionPolicy = ElementwisePolicy<LionGroup, float_rule::LionRule>;
using AdagradPolicy = ElementwisePolicy<AdagradGroup, float_rule::AdagradRule>;

template <bool kAdaptive>
struct TAMPolicy {
  using Group = TAMGroup;
  using DeviceGroup = DeviceTAMGroup;
  using Rule = float_rule::TAMRule<kAdaptive>;
  using Scalars = TAMScalars;
  static constexpr bool kTorque = true;
};

// Where the scalars of a step come from and go to; everything in device memory.
template <class Policy>
struct PrepareArguments {
  const Control* control = nullptr;
  const typename Policy::DeviceGroup* groups = nullptr;
  const std::uint16_t* group_of = nullptr;  // per tensor
  Index* step = nullptr;                    // per tensor, advanced unless the step is skipped
  double* correlation = nullptr;            // TAM: s, per tensor or one for all
  typename Policy::Scalars* scalars = nullptr;
  bool model_scope = false;
};

HONE_HOST_DEVICE inline TorqueSums sums_of(const double* sums, int count) {
  TorqueSums all;
  all.gg = sums[0];
  if (count > 1) {
    all.mg = sums[1];
    all.mm = sums[2];
  }
  if (count > 3) {
    all.mp = sums[3];
    all.gp = sums[4];
    all.pp = sums[5];
  }
  return all;
}

// Step counter, correlation and scalars of one tensor. `sums` are read by TAM in Tensor scope only.
template <class Policy>
HONE_HOST_DEVICE inline void prepare_tensor(const PrepareArguments<Policy>& a, Index tensor,
                                            const TorqueSums& sums) {
  const ControlResults& results = a.control->results;
  if (results.skip != 0) return;
  const auto& group = a.groups[a.group_of[tensor]];
  const Index t = a.step[tensor] + 1;
  a.step[tensor] = t;
  if constexpr (Policy::kTorque) {
    double correlation = results.model_correlation;
    if (!a.model_scope) {
      const Torque torque = device_torque(sums, results.grad_scale, group);
      correlation = a.correlation[tensor];
      if (!group.has_fixed_damping) {
        correlation = smooth(group, correlation, device_cosine(torque, group, group.clamp));
        a.correlation[tensor] = correlation;
      }
    }
    a.scalars[tensor] = device_scalars(group, correlation, results.grad_scale, t);
  } else {
    a.scalars[tensor] = device_scalars(group, t, results.grad_scale);
  }
}

// TAM in Model scope: the new s from the torque of all tensors, by the first group's numbers.
HONE_HOST_DEVICE inline double model_correlation(const DeviceTAMGroup& first, double before,
                                                 const Torque& total) {
  if (first.has_fixed_damping) return before;
  return smooth(first, before, device_cosine(total, first, true));
}

}  // namespace hone::kernels::cuda
