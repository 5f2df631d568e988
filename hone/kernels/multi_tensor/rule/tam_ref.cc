// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/kernels/multi_tensor/rule/tam.h"
#include "hone/kernels/multi_tensor/rule/write_back.h"

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
BasicTAMScalars<Real> tam_scalars(const TAMGroup& group, double correlation, double grad_scale) {
  BasicTAMScalars<Real> scalars;
  scalars.grad_scale = static_cast<Real>(group.maximize ? -grad_scale : grad_scale);
  scalars.l2 = static_cast<Real>(group.decoupled ? 0 : group.weight_decay);
  scalars.momentum_keep = static_cast<Real>(group.momentum);
  scalars.damping = static_cast<Real>(group.eps + (1 + correlation) / 2);
  scalars.lr = static_cast<Real>(group.lr);
  scalars.keep = static_cast<Real>(group.decoupled ? 1 - group.lr * group.weight_decay : 1);
  scalars.square_share = static_cast<Real>(1 - group.beta2);
  scalars.eps = static_cast<Real>(group.eps);
  return scalars;
}

template <class Real>
void update_tam_reference(const BasicChunkOperands<Real>& chunk, const BasicTAMScalars<double>& s,
                          GradWriteBack grad) {
  for (Index i = 0; i < chunk.length; ++i) {
    const double p = chunk.param[i];
    const double scaled = s.grad_scale * chunk.grad[i];
    const double g = scaled + s.l2 * p;
    const double m = s.momentum_keep * chunk.momentum[i] + s.damping * g;
    chunk.momentum[i] = static_cast<Real>(m);
    double update = m;
    if (chunk.second_moment != nullptr) {
      const double v = chunk.second_moment[i] + s.square_share * (g * g - chunk.second_moment[i]);
      chunk.second_moment[i] = static_cast<Real>(v);
      update = m / (std::sqrt(v) + s.eps);
    }
    chunk.param[i] = static_cast<Real>(s.keep * p - s.lr * update);
    write_back_reference(grad, scaled, s.grad_scale, chunk.grad[i]);
  }
}

template BasicTAMScalars<float> tam_scalars<float>(const TAMGroup&, double, double);
template BasicTAMScalars<double> tam_scalars<double>(const TAMGroup&, double, double);
template void update_tam_reference<float>(const BasicChunkOperands<float>&,
                                          const BasicTAMScalars<double>&, GradWriteBack);
template void update_tam_reference<double>(const BasicChunkOperands<double>&,
                                           const BasicTAMScalars<double>&, GradWriteBack);

}  // namespace hone::kernels
