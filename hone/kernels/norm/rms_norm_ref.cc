// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/norm/rms_norm.h"

namespace hone::kernels {

void rms_norm_ref(const RmsNormArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    double squares = 0;
    for (Index i = 0; i < args.cols; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(args.cols) + args.epsilon);
    for (Index i = 0; i < args.cols; ++i) y[i] = static_cast<float>(x[i] * scale * args.weight[i]);
  }
}

}  // namespace hone::kernels
