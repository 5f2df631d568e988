// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/kernels/multi_tensor/rule/adam.h"

namespace hone::kernels {

template <class Real>
BasicAdamScalars<Real> adam_scalars(const AdamGroup& group, Index t, double grad_scale) {
  // 1 - β^t without cancellation; 1 when β = 0.
  const auto correction = [t](double beta) {
    return beta > 0 ? -std::expm1(static_cast<double>(t) * std::log(beta)) : 1.0;
  };
  BasicAdamScalars<Real> scalars;
  scalars.grad_scale = static_cast<Real>(group.maximize ? -grad_scale : grad_scale);
  scalars.l2 = static_cast<Real>(group.decoupled ? 0 : group.weight_decay);
  scalars.keep = static_cast<Real>(group.decoupled ? 1 - group.lr * group.weight_decay : 1);
  scalars.mean_share = static_cast<Real>(1 - group.beta1);
  scalars.square_share = static_cast<Real>(1 - group.beta2);
  scalars.step_size = static_cast<Real>(group.lr / correction(group.beta1));
  scalars.inverse_root_correction = static_cast<Real>(1 / std::sqrt(correction(group.beta2)));
  scalars.eps = static_cast<Real>(group.eps);
  return scalars;
}

template <class Real>
void update_adam_reference(const BasicChunkOperands<Real>& chunk,
                           const BasicAdamScalars<double>& s) {
  for (Index i = 0; i < chunk.length; ++i) {
    const double p = chunk.param[i];
    const double g = s.grad_scale * chunk.grad[i] + s.l2 * p;
    const double m = chunk.momentum[i] + s.mean_share * (g - chunk.momentum[i]);
    const double v = chunk.second_moment[i] + s.square_share * (g * g - chunk.second_moment[i]);
    double seen = v;
    if (chunk.extra != nullptr) {
      seen = std::max<double>(v, chunk.extra[i]);
      chunk.extra[i] = static_cast<Real>(seen);
    }
    const double denominator = std::sqrt(seen) * s.inverse_root_correction + s.eps;
    chunk.param[i] = static_cast<Real>(s.keep * p - s.step_size * m / denominator);
    chunk.momentum[i] = static_cast<Real>(m);
    chunk.second_moment[i] = static_cast<Real>(v);
  }
}

template BasicAdamScalars<float> adam_scalars<float>(const AdamGroup&, Index, double);
template BasicAdamScalars<double> adam_scalars<double>(const AdamGroup&, Index, double);
template void update_adam_reference<float>(const BasicChunkOperands<float>&,
                                           const BasicAdamScalars<double>&);
template void update_adam_reference<double>(const BasicChunkOperands<double>&,
                                            const BasicAdamScalars<double>&);

}  // namespace hone::kernels
