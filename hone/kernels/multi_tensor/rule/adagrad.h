// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Adagrad (JMLR 12, 2011); t counts from 1, g' = k g + λ p where k unscales and clips:
//   a <- a + g'^2
//   p <- p - η / (1 + (t - 1) η_d) · g' / (sqrt(a) + ε)
// Slots: second_moment = a, which the caller fills with its initial value. Traffic: 20 bytes per
// parameter, fp32; +4 when pass 1 runs.
struct AdagradGroup {
  double lr = 1e-2;
  double lr_decay = 0;  // η_d
  double weight_decay = 0;
  double eps = 1e-10;
  bool maximize = false;

  bool operator==(const AdagradGroup&) const = default;
};

// Error{InvalidArgument} naming a field whose value makes no sense.
void check_adagrad_group(const AdagradGroup& group);

// Steps every tensor of the plan; its step counters advance only when the report says stepped.
StepReport adagrad_step(const MultiTensorPlan& plan, std::span<const AdagradGroup> groups,
                        const StepControl& control, Executor& executor);

// ---- one chunk ----

template <class Real>
struct BasicAdagradScalars {
  Real grad_scale = 1;  // k; negative when maximizing
  Real l2 = 0;          // λ
  Real lr = 0;          // η / (1 + (t - 1) η_d)
  Real eps = 0;
};
using AdagradScalars = BasicAdagradScalars<float>;

// `t` is the number of this step, from 1.
template <class Real>
BasicAdagradScalars<Real> adagrad_scalars(const AdagradGroup& group, Index t, double grad_scale);

using UpdateAdagradChunk = void (*)(const ChunkOperands&, const AdagradScalars&);
UpdateAdagradChunk choose_adagrad_update();

// The same as a plain loop; all arithmetic in double.
template <class Real>
void update_adagrad_reference(const BasicChunkOperands<Real>& chunk,
                              const BasicAdagradScalars<double>& scalars);

}  // namespace hone::kernels
