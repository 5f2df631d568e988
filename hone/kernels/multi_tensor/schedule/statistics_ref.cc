// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/statistics.h"

#include <cmath>

namespace hone::kernels {

namespace {

double limited(double value, double limit) {
  return std::abs(value) > limit ? std::copysign(limit, value) : value;
}

}  // namespace

template <class Real>
void gather_reference(Statistics kind, const BasicChunkOperands<Real>& chunk, double* sums) {
  TorqueSums total;
  for (Index i = 0; i < chunk.length; ++i) {
    const double g = limited(chunk.grad[i], chunk.grad_limit);
    total.gg += g * g;
    if (kind == Statistics::Norm) continue;
    const double m = chunk.momentum[i];
    total.mg += m * g;
    total.mm += m * m;
    if (kind == Statistics::Torque) continue;
    const double p = chunk.param[i];
    total.mp += m * p;
    total.gp += g * p;
    total.pp += p * p;
  }
  const double all[] = {total.gg, total.mg, total.mm, total.mp, total.gp, total.pp};
  for (Index s = 0; s < count_sums(kind); ++s) sums[s] = all[s];
}

template void gather_reference<float>(Statistics, const BasicChunkOperands<float>&, double*);
template void gather_reference<double>(Statistics, const BasicChunkOperands<double>&, double*);

}  // namespace hone::kernels
