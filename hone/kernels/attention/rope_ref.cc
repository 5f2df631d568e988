// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/rope.h"

namespace hone::kernels {

void apply_rope_ref(const RopeArgs& args) {
  const Index pairs = args.dims / 2;
  const bool half_split = args.pairs == RopePairs::HalfSplit;
  for (Index row = 0; row < args.rows; ++row) {
    const Index table = row % args.positions * pairs;
    for (Index head = 0; head < args.heads; ++head) {
      const float* x = args.x + row * args.x_stride + head * args.head_dim;
      float* y = args.y + row * args.y_stride + head * args.head_dim;
      for (Index i = 0; i < pairs; ++i) {
        const Index at_a = half_split ? i : 2 * i, at_b = half_split ? i + pairs : 2 * i + 1;
        const double a = x[at_a], b = x[at_b], c = args.cosine[table + i];
        const double s = args.inverse ? -args.sine[table + i] : args.sine[table + i];
        y[at_a] = static_cast<float>(a * c - b * s);
        y[at_b] = static_cast<float>(b * c + a * s);
      }
      for (Index i = args.dims; i < args.head_dim; ++i) y[i] = x[i];
    }
  }
}

}  // namespace hone::kernels
