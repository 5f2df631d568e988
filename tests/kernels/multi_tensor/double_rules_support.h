// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

// Every rule beside the same rule with all state in double.
namespace hone::kernels::test {

constexpr Index kTrainSteps = 100;

struct DoubleState {
  // Copies one tensor of `set`, as it is now.
  DoubleState(hone::test::TensorSet& set, Index tensor);
  BasicChunkOperands<double> operands();

  std::vector<double> param, grad, momentum, second_moment, extra;
  double correlation = 0;
};

struct DoubleRule {
  const char* name;
  hone::test::TensorSetOptions slots;
  // `correlation`: one value per tensor; read by TAM only.
  std::function<StepReport(const MultiTensorPlan&, std::span<double> correlation,
                           const StepControl&, Executor&)>
      step;
  std::function<void(DoubleState&, Index t)> reference;
};

// All rules but Lion, whose sign is not continuous, with settings that use every term.
std::vector<DoubleRule> double_rules();
DoubleRule lion_double_rule();

}  // namespace hone::kernels::test
