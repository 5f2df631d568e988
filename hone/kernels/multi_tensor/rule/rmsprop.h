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

// RMSprop (Tieleman and Hinton, lecture 6.5, 2012; centered: arXiv 1308.0850). g' = k g + λ p,
// where k unscales and clips:
//   v <- α v + (1 - α) g'^2
//   x <- α x + (1 - α) g'                     centered only
//   u  = g' / (sqrt(v) + ε), centered g' / (sqrt(max(0, v - x^2)) + ε)
//   m <- μ m + u, u = m                       if μ > 0
//   p <- p - η u
// Slots: second_moment = v, momentum = m if some μ > 0, extra = x if some group is centered. m and
// x of other groups do not change. Traffic: 20 bytes per parameter, fp32; +8 with momentum, +8
// centered, +4 when pass 1 runs.
struct RMSpropGroup {
  static constexpr bool kOnCuda = true;

  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;  // μ
  bool centered = false;
  bool maximize = false;

  bool operator==(const RMSpropGroup&) const = default;
};

// Throws Error{InvalidArgument} that names `op` and the field if a value is not valid.
inline void check_group(std::string_view op, const RMSpropGroup& group) {
  check_rates(op, group);
  check_decay(op, "alpha", group.alpha);
  check_at_least_zero(op, "eps", group.eps);
  check_decay(op, "momentum", group.momentum);
}
inline RuleSlots rule_slots(const RMSpropGroup& group) {
  return {.momentum = group.momentum > 0, .second_moment = true, .extra = group.centered};
}

// Steps every tensor of the plan. Its step counters advance only if the report says stepped.
StepReport rmsprop_step(const MultiTensorPlan& plan, std::span<const RMSpropGroup> groups,
                        const StepControl& control, Executor& executor);

// ---- one tensor ----

// The values of the formula that are the same for all elements of one tensor.
struct RMSpropScalars {
  float grad_scale = 1;     // k; negative when maximizing
  float l2 = 0;             // λ
  float square_share = 0;   // 1 - α
  float center_share = 0;   // 1 - α if centered
  float momentum_keep = 0;  // μ
  float grad_share = 1, look_ahead = 1, direct = 0;
  float lr = 0;
  float eps = 0;
  float root_scale = 1;
};

HONE_HOST_DEVICE inline RMSpropScalars make_scalars(const RMSpropGroup& group, Index /*t*/,
                                                    double grad_scale) {
  RMSpropScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.weight_decay);
  s.square_share = static_cast<float>(1 - group.alpha);
  s.center_share = group.centered ? s.square_share : 0;
  s.momentum_keep = static_cast<float>(group.momentum);
  if (group.momentum == 0) {  // if other groups have momentum, m does not change
    s.momentum_keep = s.direct = 1;
    s.grad_share = s.look_ahead = 0;
  }
  s.lr = static_cast<float>(group.lr);
  s.eps = static_cast<float>(group.eps);
  return s;
}

}  // namespace hone::kernels
