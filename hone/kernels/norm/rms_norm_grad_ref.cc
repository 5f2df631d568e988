// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "hone/kernels/norm/rms_norm_grad.h"

namespace hone::kernels {

void rms_norm_grad_ref(const RmsNormGradArgs& args) {
  std::vector<double> weight_sum(static_cast<std::size_t>(args.cols));
  for (Index row = 0; row < args.rows; ++row) {
    const Index at = row * args.cols;
    const double r = args.inverse_rms[row];
    double dot = 0;
    for (Index i = 0; i < args.cols; ++i) {
      const double gx = static_cast<double>(args.grad_y[at + i]) * args.x[at + i];
      dot += gx * args.weight[i];
      weight_sum[static_cast<std::size_t>(i)] += gx * r;
    }
    for (Index i = 0; i < args.cols; ++i) {
      const double carried = args.grad_sum == nullptr ? 0.0 : args.grad_sum[at + i];
      const double gw = static_cast<double>(args.grad_y[at + i]) * args.weight[i];
      const double back = args.x[at + i] * r * r * r * dot / static_cast<double>(args.cols);
      args.grad_x[at + i] = static_cast<float>(carried + r * gw - back);
    }
  }
  std::transform(weight_sum.begin(), weight_sum.end(), args.grad_weight,
                 [](double value) { return static_cast<float>(value); });
}

}  // namespace hone::kernels
