// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/executor.h"
#include "hone/kernels/multi_tensor/chunk_operands.h"
#include "hone/kernels/multi_tensor/pass/statistics.h"
#include "hone/kernels/multi_tensor/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Torque-Aware Momentum (arXiv 2412.18790); g' = k g (+ λ p with coupled decay):
//   S = <m, g'> / (|m| |g'|), 0 when either norm is 0, within [-1, 1]
//   s <- γ s + (1 - γ) S          d = (1 + s) / 2
//   m <- β m + (ε + d) g'
//   TAM      p <- (1 - ηλ) p - η m
//   AdaTAM   v <- β2 v + (1 - β2) g'^2;   p <- (1 - ηλ) p - η m / (sqrt(v) + ε)
// m is a sum, not an average; there is no bias correction. The factor 1 - ηλ is there with
// decoupled decay only. Slots: momentum = m, second_moment = v (AdaTAM). Traffic, fp32 bytes per
// parameter: pass 1 reads g and m (8, with coupled decay 12), pass 2 moves 20 (AdaTAM 28). Pass 2
// finds a tensor in cache that fits there, unless a global norm is needed.
enum class TAMScope {
  Model,   // one S over all tensors of the call
  Tensor,  // one per tensor
};

// How S is kept finite for tiny norms; both act on the unscaled gradient.
enum class CosineGuard {
  Additive,  // <m, g> / ((|m| + eps_norm)(|g| + eps_norm))
  Clamp,     // <m, g> / (max(|m|, eps_corr) max(|g|, eps_corr))
};

struct TAMGroup {
  double lr = 1e-3;
  double momentum = 0.9;    // β
  double decay_rate = 0.9;  // γ
  double beta2 = 0.999;     // AdaTAM
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
  bool maximize = false;
  CosineGuard guard = CosineGuard::Additive;
  double eps_norm = 1e-10, eps_corr = 1e-8;
};

// Error{InvalidArgument} naming a field whose value makes no sense.
void check_tam_group(const TAMGroup& group);

// Steps every tensor of the plan, with AdaTAM's second moment when the plan has that slot.
// `correlation` holds s: one value per tensor, or one in Model scope (which uses the decay rate and
// Clamp guard of the first group). Neither it nor the step counters change when nothing is stepped.
StepReport tam_step(const MultiTensorPlan& plan, std::span<const TAMGroup> groups, TAMScope scope,
                    std::span<double> correlation, const StepControl& control, Executor& executor);

// <m, g'>, |m|^2 and |g'|^2 of one tensor, or of several added up.
struct Torque {
  double mg = 0, mm = 0, gg = 0;
};
// From sums over raw gradients: <m, g'> = k mg + λ mp, |g'|^2 = k^2 gg + 2 k λ gp + λ^2 pp.
Torque effective_torque(const TorqueSums& sums, double grad_scale, const TAMGroup& group);
// S of the formula above.
double torque_cosine(const Torque& torque, const TAMGroup& group, CosineGuard guard);

// ---- one chunk ----

template <class Real>
struct BasicTAMScalars {
  Real grad_scale = 1;     // k; negative when maximising
  Real l2 = 0;             // λ of coupled decay
  Real momentum_keep = 0;  // β
  Real damping = 0;        // ε + d
  Real lr = 0;
  Real keep = 1;          // 1 - ηλ of decoupled decay, rounded as LibTorch does
  Real square_share = 0;  // 1 - β2
  Real eps = 0;
};
using TAMScalars = BasicTAMScalars<float>;

// `correlation` is the new s.
template <class Real>
BasicTAMScalars<Real> tam_scalars(const TAMGroup& group, double correlation, double grad_scale);

using UpdateTAMChunk = void (*)(const ChunkOperands&, const TAMScalars&);
UpdateTAMChunk choose_tam_update(bool adaptive, GradWriteBack grad);

// The same as a plain loop; all arithmetic in double. AdaTAM where chunk.second_moment is given.
template <class Real>
void update_tam_reference(const BasicChunkOperands<Real>& chunk,
                          const BasicTAMScalars<double>& scalars, GradWriteBack grad);

}  // namespace hone::kernels
