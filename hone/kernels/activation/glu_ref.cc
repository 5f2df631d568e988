// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "hone/kernels/activation/glu.h"

namespace hone::kernels {
namespace {

struct Activated {
  double value = 0, slope = 0;
};

Activated silu(double z) {
  const double s = 1.0 / (1.0 + std::exp(-z));
  return {.value = z * s, .slope = s * (1.0 + z * (1.0 - s))};
}

Activated gelu_tanh(double z) {
  const double root = std::sqrt(2 / std::numbers::pi), cubic = 0.044715;
  const double t = std::tanh(root * (z + cubic * z * z * z));
  const double inner_slope = root * (1 + 3 * cubic * z * z);
  return {.value = z / 2 * (1 + t), .slope = (1 + t) / 2 + z / 2 * (1 - t * t) * inner_slope};
}

Activated activate(Gate gate, double z) { return gate == Gate::Silu ? silu(z) : gelu_tanh(z); }

}  // namespace

void glu_ref(const GluArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float *gate = args.gate_up + row * 2 * args.cols, *up = gate + args.cols;
    for (Index i = 0; i < args.cols; ++i)
      args.out[row * args.cols + i] =
          static_cast<float>(activate(args.gate, gate[i]).value * up[i]);
  }
}

void glu_grad_ref(const GluGradArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const Index at = row * 2 * args.cols;
    for (Index i = 0; i < args.cols; ++i) {
      const double up = args.gate_up[at + args.cols + i], g = args.grad_out[row * args.cols + i];
      const Activated act = activate(args.gate, args.gate_up[at + i]);
      args.grad_gate_up[at + i] = static_cast<float>(g * up * act.slope);
      args.grad_gate_up[at + args.cols + i] = static_cast<float>(g * act.value);
    }
  }
}

}  // namespace hone::kernels
