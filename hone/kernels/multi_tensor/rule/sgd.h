// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/rule/rule_group.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Stochastic gradient descent. g' = k g + λ p, where k unscales and clips:
//   m <- g' at the first step, then β m + (1 - δ) g'
//   u  = m, or g' + β m with Nesterov
//   p <- p - η u
// A group without momentum has u = g' and does not change m, if there is one. Slots: momentum = m,
// absent if every β is 0. Traffic: 20 bytes per parameter, fp32; 12 without momentum; +4 when pass
// 1 runs.
struct SGDGroup {
  static constexpr bool kOnCuda = true;

  double lr = 1e-3;
  double momentum = 0;   // β
  double dampening = 0;  // δ
  double weight_decay = 0;
  bool nesterov = false;  // needs β > 0 and δ = 0
  bool maximize = false;

  bool operator==(const SGDGroup&) const = default;
};

// Throws Error{InvalidArgument} that names `op` and the field if a value is not valid.
inline void check_group(std::string_view op, const SGDGroup& group) {
  check_rates(op, group);
  check_decay(op, "momentum", group.momentum);
  HONE_CHECK(std::isfinite(group.dampening), op, "finite dampening", group.dampening);
  HONE_CHECK(!group.nesterov || (group.momentum > 0 && group.dampening == 0), op,
             "momentum above 0 and no dampening with nesterov",
             concat("momentum ", group.momentum, ", dampening ", group.dampening));
}
inline RuleSlots rule_slots(const SGDGroup& group) { return {.momentum = group.momentum > 0}; }

// Steps every tensor of the plan. A tensor's first step is the one with counter 0. Counters advance
// only if the report says stepped.
StepReport sgd_step(const MultiTensorPlan& plan, std::span<const SGDGroup> groups,
                    const StepControl& control, Executor& executor);

// ---- one tensor ----

// The values of the formula that are the same for all elements of one tensor.
struct SGDScalars {
  float grad_scale = 1;     // k; negative when maximizing
  float l2 = 0;             // λ
  float momentum_keep = 0;  // β, 0 at the first step
  float grad_share = 1;     // 1 - δ, 1 at the first step
  float look_ahead = 0;     // u = look_ahead m + direct g'
  float direct = 0;         // 1 with Nesterov or without momentum
  float lr = 0;
};

// `t` is the number of this step and counts from 1.
HONE_HOST_DEVICE inline SGDScalars make_scalars(const SGDGroup& group, Index t, double grad_scale) {
  const bool first = t == 1;
  SGDScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.weight_decay);
  s.lr = static_cast<float>(group.lr);
  if (group.momentum == 0) {  // if other groups have momentum, m does not change
    s.momentum_keep = 1;
    s.grad_share = s.look_ahead = 0;
    s.direct = 1;
    return s;
  }
  s.momentum_keep = static_cast<float>(first ? 0 : group.momentum);
  s.grad_share = static_cast<float>(first ? 1 : 1 - group.dampening);
  s.look_ahead = static_cast<float>(group.nesterov ? group.momentum : 1);
  s.direct = group.nesterov ? 1.0f : 0.0f;
  return s;
}

}  // namespace hone::kernels
