// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hone/core/thread/executor.h>
#include <hone/kernels/multi_tensor/layout/plan.h>
#include <hone/kernels/multi_tensor/rule/rule_group.h>
#include <hone/kernels/multi_tensor/step.h>

#include <span>
#include <string_view>

namespace example {

// AdaBelief (arXiv 2010.07468), with decoupled weight decay:
//   m <- β1 m + (1 - β1) g          v <- β2 v + (1 - β2)(g - m)^2 + ε
//   p <- (1 - ηλ) p - η / (1 - β1^t) · m / (sqrt(v) / sqrt(1 - β2^t) + ε)
struct BeliefGroup {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-12, weight_decay = 0;
  bool maximize = false;

  bool operator==(const BeliefGroup&) const = default;
};

void check_group(std::string_view op, const BeliefGroup& group);

inline hone::kernels::RuleSlots rule_slots(const BeliefGroup&) {
  return {.momentum = true, .second_moment = true};
}

// What is the same for all elements of a tensor, named as the stages read it.
struct BeliefScalars {
  float grad_scale, keep, mean_share, square_share, lr, root_scale, eps;
};

HONE_HOST_DEVICE inline BeliefScalars make_scalars(const BeliefGroup& group, hone::Index t,
                                                   double grad_scale) {
  using hone::kernels::bias_correction;
  const auto real = [](double value) { return static_cast<float>(value); };
  return {hone::kernels::signed_scale(group.maximize, grad_scale),
          real(1 - group.lr * group.weight_decay),
          real(1 - group.beta1),
          real(1 - group.beta2),
          real(group.lr / bias_correction(group.beta1, t)),
          real(1 / ::sqrt(bias_correction(group.beta2, t))),
          real(group.eps)};
}

hone::kernels::StepReport belief_step(const hone::kernels::MultiTensorPlan& plan,
                                      std::span<const BeliefGroup> groups,
                                      const hone::kernels::StepControl& control,
                                      hone::Executor& executor);

}  // namespace example
