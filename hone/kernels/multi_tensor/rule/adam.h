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

// Adam and AdamW (arXiv 1412.6980, 1711.05101). t counts from 1; g' = k g + λ p, where k unscales
// and clips:
//   m <- β1 m + (1 - β1) g'                    v <- β2 v + (1 - β2) g'^2
//   p <- (1 - ηλ) p - η / (1 - β1^t) · m / (sqrt(v) / sqrt(1 - β2^t) + ε)
// L2 decay uses λ in g', decoupled decay uses λ in the factor of p; the other λ is then 0. AMSGrad
// replaces v in the denominator by its running maximum. Slots: momentum = m, second_moment = v,
// extra = the maximum, if some group has AMSGrad. For other groups, the maximum does not change.
// Traffic: 28 bytes per parameter, fp32; +4 when pass 1 runs; AMSGrad +8.
struct AdamGroup {
  static constexpr bool kOnCuda = true;

  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // AdamW
  bool amsgrad = false;
  bool maximize = false;

  bool operator==(const AdamGroup&) const = default;
};

// Throws Error{InvalidArgument} that names `op` and the field if a value is not valid.
inline void check_group(std::string_view op, const AdamGroup& group) {
  check_rates(op, group);
  check_decay(op, "beta1", group.beta1);
  check_decay(op, "beta2", group.beta2);
  check_at_least_zero(op, "eps", group.eps);
}
inline RuleSlots rule_slots(const AdamGroup& group) {
  return {.momentum = true, .second_moment = true, .extra = group.amsgrad};
}

// Steps every tensor of the plan. Its step counters advance only if the report says stepped.
StepReport adam_step(const MultiTensorPlan& plan, std::span<const AdamGroup> groups,
                     const StepControl& control, Executor& executor);

// ---- one tensor ----

// The values of the formula that are the same for all elements of one tensor.
struct AdamScalars {
  float grad_scale = 1;    // k; negative when maximizing
  float l2 = 0;            // λ of coupled decay
  float keep = 1;          // 1 - ηλ of decoupled decay, rounded as LibTorch does
  float mean_share = 0;    // 1 - β1
  float square_share = 0;  // 1 - β2
  float lr = 0;            // η / (1 - β1^t)
  float root_scale = 1;    // 1 / sqrt(1 - β2^t)
  float eps = 0;
  float largest_kept = 0;  // limit of the stored maximum: inf with AMSGrad
};

// `t` is the number of this step and counts from 1.
HONE_HOST_DEVICE inline AdamScalars make_scalars(const AdamGroup& group, Index t,
                                                 double grad_scale) {
  AdamScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.decoupled ? 0 : group.weight_decay);
  s.keep = static_cast<float>(group.decoupled ? 1 - group.lr * group.weight_decay : 1);
  s.mean_share = static_cast<float>(1 - group.beta1);
  s.square_share = static_cast<float>(1 - group.beta2);
  s.lr = static_cast<float>(group.lr / bias_correction(group.beta1, t));
  s.root_scale = static_cast<float>(1 / ::sqrt(bias_correction(group.beta2, t)));
  s.eps = static_cast<float>(group.eps);
  s.largest_kept = group.amsgrad ? kEndless : 0.0f;
  return s;
}

}  // namespace hone::kernels
