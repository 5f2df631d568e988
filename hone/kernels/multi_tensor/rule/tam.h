// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/rule/rule_group.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/kernels/multi_tensor/schedule/statistics.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Torque-Aware Momentum (arXiv 2412.18790). g' = k g (+ λ p with coupled decay):
//   S = <m, g'> / (|m| |g'|), 0 if either norm is 0, within [-1, 1]
//   s <- γ s + (1 - γ) S          d = (1 + s) / 2
//   m <- β m + (ε + d) g'
//   TAM      p <- (1 - ηλ) p - η m
//   AdaTAM   v <- β2 v + (1 - β2) g'^2;   p <- (1 - ηλ) p - η m / (sqrt(v) + ε)
// m is a sum, not an average; there is no bias correction. The factor 1 - ηλ applies only with
// decoupled decay. Slots: momentum = m, second_moment = v (AdaTAM).
enum class TAMScope {
  Model,   // one S over all tensors of the call
  Tensor,  // one per tensor
  Row,     // one per row of row_length elements
};
// Traffic, fp32 bytes per parameter: pass 1 reads g and m (8, with coupled decay 12), pass 2 moves
// 20 (AdaTAM 28). Pass 2 finds a tensor that fits the cache there, unless a global norm is needed.
// It always finds a row there.

// Keeps S finite for tiny norms; both guards apply to the unscaled gradient.
enum class CosineGuard {
  Additive,  // <m, g> / ((|m| + eps_norm)(|g| + eps_norm))
  Clamp,     // <m, g> / (max(|m|, eps_corr) max(|g|, eps_corr))
};

struct TAMGroup {
  static constexpr bool kOnCuda = true;

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
  // Replaces d and does not change s. For comparisons with SGD.
  std::optional<double> fixed_damping = {};
  bool average_momentum = false;  // m <- β m + (1 - β)(ε + d) g'
  // AdaTAM: uses m / (1 - β^t) and v / (1 - β2^t) in the step of p.
  bool bias_correction = false;

  bool operator==(const TAMGroup&) const = default;
};

// Throws Error{InvalidArgument} that names `op` and the field if a value is not valid.
inline void check_group(std::string_view op, const TAMGroup& group) {
  check_rates(op, group);
  check_decay(op, "momentum", group.momentum);
  check_decay(op, "decay_rate", group.decay_rate);
  check_decay(op, "beta2", group.beta2);
  check_at_least_zero(op, "eps", group.eps);
  check_at_least_zero(op, "eps_norm", group.eps_norm);
  check_at_least_zero(op, "eps_corr", group.eps_corr);
  if (group.fixed_damping) check_at_least_zero(op, "fixed_damping", *group.fixed_damping);
}

// The method for one tensor.
struct TAMMethod {
  TAMScope scope = TAMScope::Tensor;
  std::optional<CosineGuard> guard = {};  // Tensor scope; if unset, the guard of its group
  Index row_length = 0;                   // Row: as in MultiTensorLists
};
// Returns the bytes of sums that each rank exchanges per step and tensor, if ranks have parts of
// the tensor that end with rows. S needs three fp64 sums, with coupled decay six. Model: once for
// all tensors; Row: none.
constexpr Index exchanged_bytes(const TAMMethod& method, bool coupled_decay) {
  if (method.scope == TAMScope::Row) return 0;
  return Index{sizeof(double)} *
         count_sums(coupled_decay ? Statistics::TorqueWithDecay : Statistics::Torque);
}

struct TAMMethods {
  // One per tensor, or one for all. Model scope applies to all tensors, with the settings of the
  // first group, or to none.
  std::span<const TAMMethod> of_tensor;
  // Address of each tensor's s: one value (Tensor; Model: the first tensor's) or one per row (Row).
  std::span<double* const> correlation;
  // Replaces `correlation`: one value per tensor (Tensor) or one in all (Model).
  std::span<double> values = {};
};

// Steps every tensor of the plan, with AdaTAM's second moment if the plan has that slot. If nothing
// is stepped, neither s nor the step counters change.
StepReport tam_step(const MultiTensorPlan& plan, std::span<const TAMGroup> groups,
                    const TAMMethods& methods, const StepControl& control, Executor& executor);

// <m, g'>, |m|^2 and |g'|^2 of one tensor or row, or of several added up.
struct Torque {
  double mg = 0, mm = 0, gg = 0;

  HONE_HOST_DEVICE Torque& operator+=(const Torque& other) {
    mg += other.mg;
    mm += other.mm;
    gg += other.gg;
    return *this;
  }
};
// Computes it from sums over raw gradients: <m, g'> = k mg + λ mp, |g'|^2 = k^2 gg + 2 k λ gp + λ^2
// pp.
HONE_HOST_DEVICE inline Torque effective_torque(const TorqueSums& sums, double grad_scale,
                                                const TAMGroup& group) {
  const double k = group.maximize ? -grad_scale : grad_scale;
  const double l2 = group.decoupled ? 0 : group.weight_decay;
  Torque torque;
  torque.mg = k * sums.mg + l2 * sums.mp;
  torque.mm = sums.mm;
  torque.gg = std::max(0.0, k * k * sums.gg + 2 * k * l2 * sums.gp + l2 * l2 * sums.pp);
  return torque;
}
// Returns S of the formula above.
HONE_HOST_DEVICE inline double torque_cosine(const Torque& torque, const TAMGroup& group,
                                             CosineGuard guard) {
  const double m = ::sqrt(torque.mm), g = ::sqrt(torque.gg);
  if (g == 0 || m == 0) return 0;
  const double product = guard == CosineGuard::Additive
                             ? (m + group.eps_norm) * (g + group.eps_norm)
                             : std::max(m, group.eps_corr) * std::max(g, group.eps_corr);
  return std::clamp(torque.mg / product, -1.0, 1.0);
}
// Returns the new s from the old one and S; with a fixed damping, returns the old one.
HONE_HOST_DEVICE inline double next_correlation(const TAMGroup& group, double correlation,
                                                double cosine) {
  if (group.fixed_damping.has_value()) return correlation;
  return group.decay_rate * correlation + (1 - group.decay_rate) * cosine;
}

// ---- one tensor ----

// The values of the formula that are the same for all elements of one tensor.
struct TAMScalars {
  float grad_scale = 1;     // k; negative when maximizing
  float l2 = 0;             // λ of coupled decay
  float momentum_keep = 0;  // β
  float grad_share = 0;     // ε + d, times 1 - β if m is an average
  float lr = 0;             // η, with bias correction times sqrt(1 - β2^t) / (1 - β^t)
  float keep = 1;           // 1 - ηλ of decoupled decay, rounded as LibTorch does
  float square_share = 0;   // 1 - β2
  float eps = 0;            // ε, with bias correction times sqrt(1 - β2^t)
  float root_scale = 1;
};

// `correlation` is s. `t` is the number of this step and counts from 1.
HONE_HOST_DEVICE inline TAMScalars make_scalars(const TAMGroup& group, double correlation, Index t,
                                                double grad_scale) {
  const double damping =
      group.fixed_damping.has_value() ? *group.fixed_damping : (1 + correlation) / 2;
  const double share = group.average_momentum ? 1 - group.momentum : 1;
  const bool corrected = group.bias_correction;
  const double root = corrected ? ::sqrt(bias_correction(group.beta2, t)) : 1.0;
  TAMScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.decoupled ? 0 : group.weight_decay);
  s.momentum_keep = static_cast<float>(group.momentum);
  s.grad_share = static_cast<float>((group.eps + damping) * share);
  s.lr =
      static_cast<float>(group.lr * root / (corrected ? bias_correction(group.momentum, t) : 1.0));
  s.keep = static_cast<float>(group.decoupled ? 1 - group.lr * group.weight_decay : 1);
  s.square_share = static_cast<float>(1 - group.beta2);
  s.eps = static_cast<float>(group.eps * root);
  return s;
}

using UpdateTAMChunk = void (*)(const ChunkOperands&, const TAMScalars&);
UpdateTAMChunk choose_tam_update(bool adaptive);

}  // namespace hone::kernels
