// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/activation/swiglu.h"

namespace hone::kernels {

void swiglu_ref(const SwiGluArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    for (Index i = 0; i < args.cols; ++i) {
      const double gate = args.gate_up[row * 2 * args.cols + i];
      const double up = args.gate_up[row * 2 * args.cols + args.cols + i];
      args.out[row * args.cols + i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
}

void swiglu_grad_ref(const SwiGluGradArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const Index at = row * 2 * args.cols;
    for (Index i = 0; i < args.cols; ++i) {
      const double gate = args.gate_up[at + i], up = args.gate_up[at + args.cols + i];
      const double g = args.grad_out[row * args.cols + i], s = 1.0 / (1.0 + std::exp(-gate));
      args.grad_gate_up[at + i] = static_cast<float>(g * up * s * (1.0 + gate * (1.0 - s)));
      args.grad_gate_up[at + args.cols + i] = static_cast<float>(g * gate * s);
    }
  }
}

}  // namespace hone::kernels
