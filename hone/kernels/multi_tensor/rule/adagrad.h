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

// Adagrad (JMLR 12, 2011). t counts from 1; g' = k g + λ p, where k unscales and clips:
//   a <- a + g'^2
//   p <- p - η / (1 + (t - 1) η_d) · g' / (sqrt(a) + ε)
// Slots: second_moment = a, which the caller fills with its initial value. Traffic: 20 bytes per
// parameter, fp32; +4 when pass 1 runs.
struct AdagradGroup {
  static constexpr bool kOnCuda = true;

  double lr = 1e-2;
  double lr_decay = 0;  // η_d
  double weight_decay = 0;
  double eps = 1e-10;
  bool maximize = false;

  bool operator==(const AdagradGroup&) const = default;
};

// Throws Error{InvalidArgument} that names `op` and the field if a value is not valid.
inline void check_group(std::string_view op, const AdagradGroup& group) {
  check_rates(op, group);
  check_at_least_zero(op, "lr_decay", group.lr_decay);
  check_at_least_zero(op, "eps", group.eps);
}
inline RuleSlots rule_slots(const AdagradGroup&) { return {.second_moment = true}; }

// Steps every tensor of the plan. Its step counters advance only if the report says stepped.
StepReport adagrad_step(const MultiTensorPlan& plan, std::span<const AdagradGroup> groups,
                        const StepControl& control, Executor& executor);

// ---- one tensor ----

// The values of the formula that are the same for all elements of one tensor.
struct AdagradScalars {
  float grad_scale = 1;  // k; negative when maximizing
  float l2 = 0;          // λ
  float lr = 0;          // η / (1 + (t - 1) η_d)
  float eps = 0;
  float root_scale = 1, keep = 1;
};

// `t` is the number of this step and counts from 1.
HONE_HOST_DEVICE inline AdagradScalars make_scalars(const AdagradGroup& group, Index t,
                                                    double grad_scale) {
  AdagradScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.weight_decay);
  s.lr = static_cast<float>(group.lr / (1 + static_cast<double>(t - 1) * group.lr_decay));
  s.eps = static_cast<float>(group.eps);
  return s;
}

}  // namespace hone::kernels
