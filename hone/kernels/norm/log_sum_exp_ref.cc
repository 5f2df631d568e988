// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/norm/log_sum_exp.h"

namespace hone::kernels {

double log_sum_exp_ref(const float* x, Index cols) {
  double highest = -std::numeric_limits<double>::infinity();
  for (Index i = 0; i < cols; ++i) {
    if (std::isnan(x[i])) return x[i];
    highest = std::max<double>(highest, x[i]);
  }
  if (std::isinf(highest)) return highest;
  double sum = 0;
  for (Index i = 0; i < cols; ++i) sum += std::exp(x[i] - highest);
  return highest + std::log(sum);
}

}  // namespace hone::kernels
