// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "hone/kernels/multi_tensor/cuda/control.h"
#include "hone/kernels/multi_tensor/rule/scalar_ops.h"
#include "hone/kernels/multi_tensor/rule/stages-inl.h"
#include "hone/kernels/multi_tensor/rule/tam.h"

// The parts of a rule that the kernels use: its groups, its scalars and its element-wise formula.
namespace hone::kernels::cuda {

template <class GroupType, class RuleType>
struct RulePolicy {
  using Group = GroupType;
  using Rule = RuleType;
  static constexpr bool kTorque = std::is_same_v<Group, TAMGroup>;  // needs ⟨m, g⟩, |m|², |g|²

  HONE_HOST_DEVICE static auto scalars(const Group& group, [[maybe_unused]] double correlation,
                                       Index t, double grad_scale) {
    if constexpr (kTorque) {
      return make_scalars(group, correlation, t, grad_scale);
    } else {
      return make_scalars(group, t, grad_scale);
    }
  }
  using Scalars = decltype(scalars(Group(), 0, 1, 1));
};

// Inputs and outputs of the computation of a step's scalars; all in device memory.
template <class Policy>
struct PrepareArguments {
  const Control* control = nullptr;
  const typename Policy::Group* groups = nullptr;
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

// Updates step counter, correlation and scalars of one tensor. Only TAM in Tensor scope reads
// `sums`.
template <class Policy>
HONE_HOST_DEVICE inline void prepare_tensor(const PrepareArguments<Policy>& a, Index tensor,
                                            const TorqueSums& sums) {
  const ControlResults& results = a.control->results;
  if (results.skip != 0) return;
  const auto& group = a.groups[a.group_of[tensor]];
  const Index t = a.step[tensor] + 1;
  a.step[tensor] = t;
  double correlation = results.model_correlation;
  if constexpr (Policy::kTorque) {
    if (!a.model_scope) {
      const Torque torque = effective_torque(sums, results.grad_scale, group);
      correlation =
          next_correlation(group, a.correlation[tensor], torque_cosine(torque, group, group.guard));
      a.correlation[tensor] = correlation;
    }
  }
  a.scalars[tensor] = Policy::scalars(group, correlation, t, results.grad_scale);
}

// For TAM in Model scope: the new s from the torque of all tensors, with the first group's numbers.
HONE_HOST_DEVICE inline double model_correlation(const TAMGroup& first, double before,
                                                 const Torque& total) {
  return next_correlation(first, before, torque_cosine(total, first, CosineGuard::Clamp));
}

}  // namespace hone::kernels::cuda
