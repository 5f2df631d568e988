// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/sgd.h"

namespace hone::kernels {

template <class Real>
BasicSGDScalars<Real> sgd_scalars(const SGDGroup& group, Index t, double grad_scale) {
  const bool first = t == 1;
  BasicSGDScalars<Real> scalars;
  scalars.grad_scale = static_cast<Real>(group.maximize ? -grad_scale : grad_scale);
  scalars.l2 = static_cast<Real>(group.weight_decay);
  scalars.lr = static_cast<Real>(group.lr);
  if (group.momentum == 0) {  // beside groups with momentum: m waits for it
    scalars.momentum_keep = 1;
    scalars.grad_share = scalars.look_ahead = 0;
    scalars.grad_in_update = 1;
    return scalars;
  }
  scalars.momentum_keep = static_cast<Real>(first ? 0 : group.momentum);
  scalars.grad_share = static_cast<Real>(first ? 1 : 1 - group.dampening);
  scalars.look_ahead = static_cast<Real>(group.nesterov ? group.momentum : 1);
  scalars.grad_in_update = group.nesterov ? 1 : 0;
  return scalars;
}

template <class Real>
void update_sgd_reference(const BasicChunkOperands<Real>& chunk, const BasicSGDScalars<double>& s) {
  for (Index i = 0; i < chunk.length; ++i) {
    const double p = chunk.param[i];
    const double g = s.grad_scale * chunk.grad[i] + s.l2 * p;
    double update = g;
    if (chunk.momentum != nullptr) {
      const double m = s.momentum_keep * chunk.momentum[i] + s.grad_share * g;
      chunk.momentum[i] = static_cast<Real>(m);
      update = s.grad_in_update * g + s.look_ahead * m;
    }
    chunk.param[i] = static_cast<Real>(p - s.lr * update);
  }
}

template BasicSGDScalars<float> sgd_scalars<float>(const SGDGroup&, Index, double);
template BasicSGDScalars<double> sgd_scalars<double>(const SGDGroup&, Index, double);
template void update_sgd_reference<float>(const BasicChunkOperands<float>&,
                                          const BasicSGDScalars<double>&);
template void update_sgd_reference<double>(const BasicChunkOperands<double>&,
                                           const BasicSGDScalars<double>&);

}  // namespace hone::kernels
