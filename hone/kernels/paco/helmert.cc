// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/helmert.h"

#include <cmath>

namespace hone::kernels {

HelmertRows::HelmertRows(Index parts, Index divisor)
    : parts_(parts), scales_(static_cast<std::size_t>(parts)) {
  for (Index i = 1; i < parts; ++i) {
    scales_[static_cast<std::size_t>(i)] =
        1 / std::sqrt(static_cast<double>(i * (i + 1) * divisor));
  }
}

void HelmertRows::apply(const double* z, Index dim, double* rows) const {
  const double* scales = scales_.data();
  for (Index c = 0; c < dim; ++c) {
    double sum = 0;  // over the parts before i, as differences to the first
    for (Index i = 1; i < parts_; ++i) {
      const double part = z[i * dim + c] - z[c];
      rows[(i - 1) * dim + c] = (sum - static_cast<double>(i) * part) * scales[i];
      sum += part;
    }
  }
}

void HelmertRows::add_adjoint(const double* grad_rows, Index dim, double* grad_z) const {
  const double* scales = scales_.data();
  for (Index c = 0; c < dim; ++c) {
    double sum = 0;  // over the rows that hold part i with weight 1
    for (Index i = parts_ - 1; i > 0; --i) {
      const double scaled = grad_rows[(i - 1) * dim + c] * scales[i];
      grad_z[i * dim + c] += sum - static_cast<double>(i) * scaled;
      sum += scaled;
    }
    grad_z[c] += sum;
  }
}

}  // namespace hone::kernels
