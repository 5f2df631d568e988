// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Stochastic gradient descent; g' = k g + λ p where k unscales and clips:
//   m <- g' at the first step, then β m + (1 - δ) g'
//   u  = m, or g' + β m with Nesterov
//   p <- p - η u
// A group without momentum: u = g', and m, if there is one, stays. Slots: momentum = m, absent when
// every β is 0.
// Traffic: 20 bytes per parameter, fp32; 12 without momentum; +4 when pass 1 runs.
struct SGDGroup {
  double lr = 1e-3;
  double momentum = 0;   // β
  double dampening = 0;  // δ
  double weight_decay = 0;
  bool nesterov = false;  // needs β > 0 and δ = 0
  bool maximize = false;

  bool operator==(const SGDGroup&) const = default;
};

// Error{InvalidArgument} naming a field whose value makes no sense.
void check_sgd_group(const SGDGroup& group);

// Steps every tensor of the plan. A tensor's first step is the one with counter 0; counters advance
// only when the report says stepped.
StepReport sgd_step(const MultiTensorPlan& plan, std::span<const SGDGroup> groups,
                    const StepControl& control, Executor& executor);

// ---- one chunk ----

template <class Real>
struct BasicSGDScalars {
  Real grad_scale = 1;      // k; negative when maximizing
  Real l2 = 0;              // λ
  Real momentum_keep = 0;   // β, 0 at the first step
  Real grad_share = 1;      // 1 - δ, 1 at the first step
  Real look_ahead = 0;      // Nesterov: u = grad_in_update g' + look_ahead m
  Real grad_in_update = 0;  // 1 with Nesterov
  Real lr = 0;
};
using SGDScalars = BasicSGDScalars<float>;

// `t` is the number of this step, from 1.
template <class Real>
BasicSGDScalars<Real> sgd_scalars(const SGDGroup& group, Index t, double grad_scale);

using UpdateSGDChunk = void (*)(const ChunkOperands&, const SGDScalars&);
UpdateSGDChunk choose_sgd_update(bool has_momentum);

// The same as a plain loop; all arithmetic in double. chunk.momentum may be null.
template <class Real>
void update_sgd_reference(const BasicChunkOperands<Real>& chunk,
                          const BasicSGDScalars<double>& scalars);

}  // namespace hone::kernels
