// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/norm/layer_norm.h"

namespace hone::kernels {

void layer_norm_ref(const LayerNormArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    double mean = 0, variance = 0;
    for (Index i = 0; i < args.cols; ++i) mean += x[i];
    mean /= static_cast<double>(args.cols);
    for (Index i = 0; i < args.cols; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const double scale = 1 / std::sqrt(variance / static_cast<double>(args.cols) + args.epsilon);
    for (Index i = 0; i < args.cols; ++i) {
      const double bias = args.bias == nullptr ? 0 : args.bias[i];
      y[i] = static_cast<float>((x[i] - mean) * scale * args.weight[i] + bias);
    }
  }
}

}  // namespace hone::kernels
