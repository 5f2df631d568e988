// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Adam and AdamW (arXiv 1412.6980, 1711.05101); t counts from 1, g' = k g + λ p where k unscales
// and clips:
//   m <- β1 m + (1 - β1) g'                    v <- β2 v + (1 - β2) g'^2
//   p <- (1 - ηλ) p - η / (1 - β1^t) · m / (sqrt(v) / sqrt(1 - β2^t) + ε)
// L2 decay puts λ into g', decoupled decay into the factor of p; the other λ is then 0. AMSGrad
// replaces v in the denominator by its running maximum.
// Slots: momentum = m, second_moment = v, extra = the maximum (AMSGrad).
// Traffic: 28 bytes per parameter, fp32; +4 when pass 1 runs; AMSGrad +8.
struct AdamGroup {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // AdamW
  bool amsgrad = false;   // needs MultiTensorLists::extra, for all groups or none
  bool maximize = false;

  bool operator==(const AdamGroup&) const = default;
};

// Error{InvalidArgument} naming a field whose value makes no sense.
void check_adam_group(const AdamGroup& group);

// Steps every tensor of the plan; its step counters advance only when the report says stepped.
StepReport adam_step(const MultiTensorPlan& plan, std::span<const AdamGroup> groups,
                     const StepControl& control, Executor& executor);

// ---- one chunk ----

// Everything of the formula that is the same for all elements of one tensor.
template <class Real>
struct BasicAdamScalars {
  Real grad_scale = 1;               // k; negative when maximizing
  Real l2 = 0;                       // λ of coupled decay
  Real keep = 1;                     // 1 - ηλ of decoupled decay, rounded as LibTorch does
  Real mean_share = 0;               // 1 - β1
  Real square_share = 0;             // 1 - β2
  Real step_size = 0;                // η / (1 - β1^t)
  Real inverse_root_correction = 1;  // 1 / sqrt(1 - β2^t)
  Real eps = 0;
};
using AdamScalars = BasicAdamScalars<float>;

// `t` is the number of this step, from 1. Bias corrections are computed in double.
template <class Real>
BasicAdamScalars<Real> adam_scalars(const AdamGroup& group, Index t, double grad_scale);

using UpdateAdamChunk = void (*)(const ChunkOperands&, const AdamScalars&);
UpdateAdamChunk choose_adam_update(bool amsgrad);

// The same as a plain loop; all arithmetic in double.
template <class Real>
void update_adam_reference(const BasicChunkOperands<Real>& chunk,
                           const BasicAdamScalars<double>& scalars);

}  // namespace hone::kernels
