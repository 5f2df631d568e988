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

// Lion (arXiv 2302.06675). g' = k g, where k unscales and clips:
//   u = sign(β1 m + (1 - β1) g'), sign(0) = 0
//   p <- (1 - ηλ) p - η u
//   m <- β2 m + (1 - β2) g'
// Slots: momentum = m. Traffic: 20 bytes per parameter, fp32; +4 when pass 1 runs.
struct LionGroup {
  static constexpr bool kOnCuda = true;

  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  // decoupled
  bool maximize = false;

  bool operator==(const LionGroup&) const = default;
};

// Throws Error{InvalidArgument} that names `op` and the field if a value is not valid.
inline void check_group(std::string_view op, const LionGroup& group) {
  check_rates(op, group);
  check_decay(op, "beta1", group.beta1);
  check_decay(op, "beta2", group.beta2);
}
inline RuleSlots rule_slots(const LionGroup&) { return {.momentum = true}; }

// Steps every tensor of the plan. Its step counters advance only if the report says stepped.
StepReport lion_step(const MultiTensorPlan& plan, std::span<const LionGroup> groups,
                     const StepControl& control, Executor& executor);

// ---- one tensor ----

// The values of the formula that are the same for all elements of one tensor.
struct LionScalars {
  float grad_scale = 1;    // k; negative when maximizing
  float keep = 1;          // 1 - ηλ
  float update_share = 0;  // 1 - β1
  float mean_share = 0;    // 1 - β2
  float lr = 0;
};

HONE_HOST_DEVICE inline LionScalars make_scalars(const LionGroup& group, Index /*t*/,
                                                 double grad_scale) {
  LionScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.keep = static_cast<float>(1 - group.lr * group.weight_decay);
  s.update_share = static_cast<float>(1 - group.beta1);
  s.mean_share = static_cast<float>(1 - group.beta2);
  s.lr = static_cast<float>(group.lr);
  return s;
}

}  // namespace hone::kernels
