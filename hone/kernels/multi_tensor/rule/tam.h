// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "hone/core/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/schedule/statistics.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Torque-Aware Momentum (arXiv 2412.18790); g' = k g (+ λ p with coupled decay):
//   S = <m, g'> / (|m| |g'|), 0 when either norm is 0, within [-1, 1]
//   s <- γ s + (1 - γ) S          d = (1 + s) / 2
//   m <- β m + (ε + d) g'
//   TAM      p <- (1 - ηλ) p - η m
//   AdaTAM   v <- β2 v + (1 - β2) g'^2;   p <- (1 - ηλ) p - η m / (sqrt(v) + ε)
// m is a sum, not an average; there is no bias correction. The factor 1 - ηλ is there with
// decoupled decay only. Slots: momentum = m, second_moment = v (AdaTAM).
enum class TAMScope {
  Model,   // one S over all tensors of the call
  Tensor,  // one per tensor
  Row,     // one per row along the last dimension
};
// Traffic, fp32 bytes per parameter: pass 1 reads g and m (8, with coupled decay 12), pass 2 moves
// 20 (AdaTAM 28). Pass 2 finds a tensor in cache that fits there, unless a global norm is needed,
// and always a row.

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
  CosineGuard guard = CosineGuard::Additive;  // Tensor scope; others clamp
  double eps_norm = 1e-10, eps_corr = 1e-8;
  // d is this instead; s is left alone. The control of comparisons with SGD.
  std::optional<double> fixed_damping = {};
  bool average_momentum = false;  // m <- β m + (1 - β)(ε + d) g'
  // AdaTAM: m / (1 - β^t) and v / (1 - β2^t) in the step of p.
  bool bias_correction = false;
};

// Error{InvalidArgument} naming a field whose value makes no sense.
void check_tam_group(const TAMGroup& group);

// What one tensor does.
struct TAMMethod {
  TAMScope scope = TAMScope::Tensor;
  std::optional<CosineGuard> guard = {};  // Tensor scope; its group's where unset
  Index row_length = 0;                   // Row: as in MultiTensorLists
};
// Bytes of sums that each rank hands out in a step, per tensor, where ranks hold parts of it that
// end with rows: those of S in fp64 (three, with coupled decay six); Model: once for all tensors;
// Row: none.
constexpr Index exchanged_bytes(const TAMMethod& method, bool coupled_decay) {
  if (method.scope == TAMScope::Row) return 0;
  return Index{sizeof(double)} *
         count_sums(coupled_decay ? Statistics::TorqueWithDecay : Statistics::Torque);
}

struct TAMMethods {
  std::span<const TAMMethod> of_tensor;  // one per tensor, or one for all; Model for all or none
  // Where each tensor's s lie: one value (Tensor; Model: the first tensor's) or one per row (Row).
  std::span<double* const> correlation;
  // Instead: one value per tensor (Tensor) or one in all (Model).
  std::span<double> values = {};
};

// Steps every tensor of the plan, with AdaTAM's second moment when the plan has that slot. Neither
// s nor the step counters change when nothing is stepped.
StepReport tam_step(const MultiTensorPlan& plan, std::span<const TAMGroup> groups,
                    const TAMMethods& methods, const StepControl& control, Executor& executor);

// All tensors in scope Tensor, with the guard of their group, or Model, with the settings of the
// first; `correlation` is one value per tensor, or one.
StepReport tam_step(const MultiTensorPlan& plan, std::span<const TAMGroup> groups, TAMScope scope,
                    std::span<double> correlation, const StepControl& control, Executor& executor);

// <m, g'>, |m|^2 and |g'|^2 of one tensor or row, or of several added up.
struct Torque {
  double mg = 0, mm = 0, gg = 0;

  Torque& operator+=(const Torque& other) {
    mg += other.mg;
    mm += other.mm;
    gg += other.gg;
    return *this;
  }
};
// From sums over raw gradients: <m, g'> = k mg + λ mp, |g'|^2 = k^2 gg + 2 k λ gp + λ^2 pp.
Torque effective_torque(const TorqueSums& sums, double grad_scale, const TAMGroup& group);
// S of the formula above.
double torque_cosine(const Torque& torque, const TAMGroup& group, CosineGuard guard);

// ---- one chunk ----

template <class Real>
struct BasicTAMScalars {
  Real grad_scale = 1;     // k; negative when maximizing
  Real l2 = 0;             // λ of coupled decay
  Real momentum_keep = 0;  // β
  Real damping = 0;        // ε + d, times 1 - β when m is an average
  Real lr = 0;             // with bias correction η sqrt(1 - β2^t) / (1 - β^t), and ε as well
  Real keep = 1;           // 1 - ηλ of decoupled decay, rounded as LibTorch does
  Real square_share = 0;   // 1 - β2
  Real eps = 0;
};
using TAMScalars = BasicTAMScalars<float>;

// `correlation` is s; `t` the number of this step, from 1.
template <class Real>
BasicTAMScalars<Real> tam_scalars(const TAMGroup& group, double correlation, double grad_scale,
                                  Index t);

using UpdateTAMChunk = void (*)(const ChunkOperands&, const TAMScalars&);
UpdateTAMChunk choose_tam_update(bool adaptive);

// The same as a plain loop; all arithmetic in double. AdaTAM where chunk.second_moment is given.
template <class Real>
void update_tam_reference(const BasicChunkOperands<Real>& chunk,
                          const BasicTAMScalars<double>& scalars);

}  // namespace hone::kernels
