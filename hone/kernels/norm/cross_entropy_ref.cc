// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "hone/kernels/norm/cross_entropy.h"
#include "hone/kernels/norm/log_sum_exp.h"

namespace hone::kernels {

void cross_entropy_ref(const CrossEntropyArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    float* z = args.logits + row * args.classes;
    const std::int64_t target = args.targets[row];
    double total = log_sum_exp_ref(z, args.classes);
    if (!std::isfinite(total)) total = std::numeric_limits<double>::quiet_NaN();
    args.nats[row] = target < 0 ? 0.0 : total - z[target];
    if (!args.want_grad) continue;
    for (Index i = 0; i < args.classes; ++i) {
      const double gradient = std::exp(z[i] - total) - (i == target ? 1.0 : 0.0);
      z[i] = target < 0 ? 0.0f : static_cast<float>(gradient);
    }
  }
}

}  // namespace hone::kernels
