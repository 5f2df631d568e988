// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/kernels/multi_tensor/rule/tam.h"

namespace hone::kernels {

Torque effective_torque(const TorqueSums& sums, double grad_scale, const TAMGroup& group) {
  const double k = group.maximize ? -grad_scale : grad_scale;
  const double l2 = group.decoupled ? 0 : group.weight_decay;
  return {k * sums.mg + l2 * sums.mp, sums.mm,
          std::max(0.0, k * k * sums.gg + 2 * k * l2 * sums.gp + l2 * l2 * sums.pp)};
}

double torque_cosine(const Torque& torque, const TAMGroup& group, CosineGuard guard) {
  const double momentum_norm = std::sqrt(torque.mm), grad_norm = std::sqrt(torque.gg);
  if (grad_norm == 0 || momentum_norm == 0) return 0;
  const double product =
      guard == CosineGuard::Additive
          ? (momentum_norm + group.eps_norm) * (grad_norm + group.eps_norm)
          : std::max(momentum_norm, group.eps_corr) * std::max(grad_norm, group.eps_corr);
  return std::clamp(torque.mg / product, -1.0, 1.0);
}

template <class Real>
BasicTAMScalars<Real> tam_scalars(const TAMGroup& group, double correlation, double grad_scale,
                                  Index t) {
  // 1 - β^t without cancellation; 1 when β = 0 or nothing is corrected.
  const auto correction = [&](double beta) {
    if (!group.bias_correction || beta == 0) return 1.0;
    return -std::expm1(static_cast<double>(t) * std::log(beta));
  };
  const double damping = group.fixed_damping.value_or((1 + correlation) / 2);
  const double share = group.average_momentum ? 1 - group.momentum : 1;
  BasicTAMScalars<Real> scalars;
  scalars.grad_scale = static_cast<Real>(group.maximize ? -grad_scale : grad_scale);
  scalars.l2 = static_cast<Real>(group.decoupled ? 0 : group.weight_decay);
  scalars.momentum_keep = static_cast<Real>(group.momentum);
  scalars.damping = static_cast<Real>((group.eps + damping) * share);
  const double root = std::sqrt(correction(group.beta2));
  scalars.lr = static_cast<Real>(group.lr * root / correction(group.momentum));
  scalars.keep = static_cast<Real>(group.decoupled ? 1 - group.lr * group.weight_decay : 1);
  scalars.square_share = static_cast<Real>(1 - group.beta2);
  scalars.eps = static_cast<Real>(group.eps * root);
  return scalars;
}

template <class Real>
void update_tam_reference(const BasicChunkOperands<Real>& chunk, const BasicTAMScalars<double>& s) {
  for (Index i = 0; i < chunk.length; ++i) {
    const double p = chunk.param[i];
    const double g = s.grad_scale * chunk.grad[i] + s.l2 * p;
    const double m = s.momentum_keep * chunk.momentum[i] + s.damping * g;
    chunk.momentum[i] = static_cast<Real>(m);
    double update = m;
    if (chunk.second_moment != nullptr) {
      const double v = chunk.second_moment[i] + s.square_share * (g * g - chunk.second_moment[i]);
      chunk.second_moment[i] = static_cast<Real>(v);
      update = m / (std::sqrt(v) + s.eps);
    }
    chunk.param[i] = static_cast<Real>(s.keep * p - s.lr * update);
  }
}

template BasicTAMScalars<float> tam_scalars<float>(const TAMGroup&, double, double, Index);
template BasicTAMScalars<double> tam_scalars<double>(const TAMGroup&, double, double, Index);
template void update_tam_reference<float>(const BasicChunkOperands<float>&,
                                          const BasicTAMScalars<double>&);
template void update_tam_reference<double>(const BasicChunkOperands<double>&,
                                           const BasicTAMScalars<double>&);

}  // namespace hone::kernels
