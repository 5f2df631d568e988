// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/multi_tensor/layout/plan.h"

namespace hone::kernels {

// Whether the plan still describes these tensors.
inline bool matches(MultiTensorPlan plan, const MultiTensorLists& lists) {
  return plan.follow_or_throw(lists) == MultiTensorPlan::Change::None;
}

}  // namespace hone::kernels
