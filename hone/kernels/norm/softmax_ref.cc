// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/norm/softmax.h"

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

void softmax_ref(const SoftmaxArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.stride;
    float* y = args.y + row * args.stride;
    const double total = log_sum_exp_ref(x, args.cols);
    for (Index i = 0; i < args.cols; ++i) {
      const bool empty = std::isinf(total) && total < 0;
      y[i] = empty ? 0.0f : static_cast<float>(std::exp(x[i] - total));
    }
  }
}

}  // namespace hone::kernels
