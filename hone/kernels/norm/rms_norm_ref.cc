// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/norm/rms_norm.h"

namespace hone::kernels {

void rms_norm_ref(const RmsNormArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const Index at = row * args.x_stride;
    const float* x = args.x + at;
    if (args.delta != nullptr) {
      for (Index i = 0; i < args.cols; ++i) args.sum[at + i] = x[i] + args.delta[at + i];
      x = args.sum + at;
    }
    float* y = args.y + row * args.y_stride;
    double squares = 0;
    for (Index i = 0; i < args.cols; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(args.cols) + args.epsilon);
    if (args.inverse_rms != nullptr) args.inverse_rms[row] = static_cast<float>(scale);
    for (Index i = 0; i < args.cols; ++i) y[i] = static_cast<float>(x[i] * scale * args.weight[i]);
  }
}

}  // namespace hone::kernels
