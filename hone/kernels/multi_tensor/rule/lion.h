// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Lion (arXiv 2302.06675); g' = k g where k unscales and clips:
//   u = sign(β1 m + (1 - β1) g'), sign(0) = 0
//   p <- (1 - ηλ) p - η u
//   m <- β2 m + (1 - β2) g'
// Slots: momentum = m. Traffic: 20 bytes per parameter, fp32; +4 when pass 1 runs.
struct LionGroup {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  // decoupled
  bool maximize = false;

  bool operator==(const LionGroup&) const = default;
};

// Error{InvalidArgument} naming a field whose value makes no sense.
void check_lion_group(const LionGroup& group);

// Steps every tensor of the plan; its step counters advance only when the report says stepped.
StepReport lion_step(const MultiTensorPlan& plan, std::span<const LionGroup> groups,
                     const StepControl& control, Executor& executor);

// ---- one chunk ----

template <class Real>
struct BasicLionScalars {
  Real grad_scale = 1;    // k; negative when maximizing
  Real keep = 1;          // 1 - ηλ
  Real update_share = 0;  // 1 - β1
  Real mean_share = 0;    // 1 - β2
  Real lr = 0;
};
using LionScalars = BasicLionScalars<float>;

// `t` is the number of this step, from 1.
template <class Real>
BasicLionScalars<Real> lion_scalars(const LionGroup& group, Index t, double grad_scale);

using UpdateLionChunk = void (*)(const ChunkOperands&, const LionScalars&);
UpdateLionChunk choose_lion_update();

// The same as a plain loop; all arithmetic in double.
template <class Real>
void update_lion_reference(const BasicChunkOperands<Real>& chunk,
                           const BasicLionScalars<double>& scalars);

}  // namespace hone::kernels
