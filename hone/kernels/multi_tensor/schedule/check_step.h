// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string_view>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Throw Error{InvalidArgument} that names `op` and the field.
inline void check_at_least_zero(std::string_view op, std::string_view field, double value) {
  HONE_CHECK(std::isfinite(value) && value >= 0, op, concat(field, " finite and at least 0"),
             value);
}
inline void check_decay(std::string_view op, std::string_view field, double value) {
  HONE_CHECK(value >= 0 && value < 1, op, concat(field, " in [0, 1)"), value);
}
// Checks the fields that every rule's group has.
template <class Group>
void check_rates(std::string_view op, const Group& group) {
  check_at_least_zero(op, "lr", group.lr);
  check_at_least_zero(op, "weight_decay", group.weight_decay);
}

inline void check_step_control(std::string_view op, const StepControl& control) {
  HONE_CHECK(std::isfinite(control.inv_scale) && control.inv_scale > 0, op,
             "a finite positive inv_scale", control.inv_scale);
  HONE_CHECK(control.clip_norm >= 0, op, "clip_norm of at least 0", control.clip_norm);
  HONE_CHECK(control.clip_value >= 0, op, "clip_value of at least 0", control.clip_value);
  const auto limits = [](double clip) { return clip > 0 && !std::isinf(clip); };
  HONE_CHECK(!limits(control.clip_value) || !limits(control.clip_norm), op,
             "clip_norm or clip_value", "both");
  HONE_CHECK(control.norm_type > 0, op, "a norm_type above 0", control.norm_type);
  check_decay(op, "ema_decay", control.ema_decay);
}

inline void check_group_numbers(std::string_view op, const MultiTensorPlan& plan,
                                std::size_t groups) {
  for (Index i = 0; i < plan.tensors(); ++i) {
    HONE_CHECK(plan.tensor(i).group < groups, op,
               concat("a group below ", groups, " for tensor ", i), plan.tensor(i).group);
  }
}

inline void check_slot(std::string_view op, const MultiTensorPlan& plan, Slot slot,
                       std::string_view name, bool expected) {
  if (plan.tensors() == 0) return;
  const bool there = plan.has_slot(slot);
  HONE_CHECK(there == expected, op, concat(expected ? "a " : "no ", name, " list"),
             there ? "one" : "none");
}

}  // namespace hone::kernels
