// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/multi_tensor/rule/adagrad.h"

namespace hone::kernels {

template <class Real>
BasicAdagradScalars<Real> adagrad_scalars(const AdagradGroup& group, Index t, double grad_scale) {
  BasicAdagradScalars<Real> scalars;
  scalars.grad_scale = static_cast<Real>(group.maximize ? -grad_scale : grad_scale);
  scalars.l2 = static_cast<Real>(group.weight_decay);
  scalars.lr = static_cast<Real>(group.lr / (1 + static_cast<double>(t - 1) * group.lr_decay));
  scalars.eps = static_cast<Real>(group.eps);
  return scalars;
}

template <class Real>
void update_adagrad_reference(const BasicChunkOperands<Real>& chunk,
                              const BasicAdagradScalars<double>& s) {
  for (Index i = 0; i < chunk.length; ++i) {
    const double p = chunk.param[i];
    const double g = s.grad_scale * chunk.grad[i] + s.l2 * p;
    const double sum = chunk.second_moment[i] + g * g;
    chunk.second_moment[i] = static_cast<Real>(sum);
    chunk.param[i] = static_cast<Real>(p - s.lr * g / (std::sqrt(sum) + s.eps));
  }
}

template BasicAdagradScalars<float> adagrad_scalars<float>(const AdagradGroup&, Index, double);
template BasicAdagradScalars<double> adagrad_scalars<double>(const AdagradGroup&, Index, double);
template void update_adagrad_reference<float>(const BasicChunkOperands<float>&,
                                              const BasicAdagradScalars<double>&);
template void update_adagrad_reference<double>(const BasicChunkOperands<double>&,
                                               const BasicAdagradScalars<double>&);

}  // namespace hone::kernels
