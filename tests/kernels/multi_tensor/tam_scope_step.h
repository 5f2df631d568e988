// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/multi_tensor/rule/tam.h"

namespace hone::kernels {

// All tensors in scope Tensor, with the guard of their group, or Model; `correlation` is one value
// per tensor, or one.
inline StepReport tam_step(const MultiTensorPlan& plan, std::span<const TAMGroup> groups,
                           TAMScope scope, std::span<double> correlation,
                           const StepControl& control, Executor& executor) {
  const TAMMethod method{.scope = scope};
  const TAMMethods methods{.of_tensor = {&method, 1}, .correlation = {}, .values = correlation};
  return tam_step(plan, groups, methods, control, executor);
}

}  // namespace hone::kernels
