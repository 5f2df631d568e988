// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/lion.h"

namespace hone::kernels {

template <class Real>
BasicLionScalars<Real> lion_scalars(const LionGroup& group, Index /*t*/, double grad_scale) {
  BasicLionScalars<Real> scalars;
  scalars.grad_scale = static_cast<Real>(group.maximize ? -grad_scale : grad_scale);
  scalars.keep = static_cast<Real>(1 - group.lr * group.weight_decay);
  scalars.update_share = static_cast<Real>(1 - group.beta1);
  scalars.mean_share = static_cast<Real>(1 - group.beta2);
  scalars.lr = static_cast<Real>(group.lr);
  return scalars;
}

template <class Real>
void update_lion_reference(const BasicChunkOperands<Real>& chunk,
                           const BasicLionScalars<double>& s) {
  for (Index i = 0; i < chunk.length; ++i) {
    const double g = s.grad_scale * chunk.grad[i], m = chunk.momentum[i];
    const double mixed = m + s.update_share * (g - m);
    const double direction = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
    chunk.param[i] = static_cast<Real>(s.keep * chunk.param[i] - s.lr * direction);
    chunk.momentum[i] = static_cast<Real>(m + s.mean_share * (g - m));
  }
}

template BasicLionScalars<float> lion_scalars<float>(const LionGroup&, Index, double);
template BasicLionScalars<double> lion_scalars<double>(const LionGroup&, Index, double);
template void update_lion_reference<float>(const BasicChunkOperands<float>&,
                                           const BasicLionScalars<double>&);
template void update_lion_reference<double>(const BasicChunkOperands<double>&,
                                            const BasicLionScalars<double>&);

}  // namespace hone::kernels
