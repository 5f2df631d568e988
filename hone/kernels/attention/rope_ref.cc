// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/rope.h"

namespace hone::kernels {

void apply_rope_ref(const RopeArgs& args) {
  const Index pairs = args.dims / 2;
  const bool half_split = args.pairs == RopePairs::HalfSplit;
  for (Index row = 0; row < args.rows; ++row) {
    for (Index head = 0; head < args.heads; ++head) {
      float* x = args.x + row * args.row_stride + head * args.head_dim;
      for (Index i = 0; i < pairs; ++i) {
        float& a = x[half_split ? i : 2 * i];
        float& b = x[half_split ? i + pairs : 2 * i + 1];
        const double c = args.cosine[row * pairs + i], s = args.sine[row * pairs + i];
        const double turned = a * c - b * s;
        b = static_cast<float>(b * c + a * s);
        a = static_cast<float>(turned);
      }
    }
  }
}

}  // namespace hone::kernels
