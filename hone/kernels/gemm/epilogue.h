// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

namespace hone::kernels {

enum class Activation : std::uint8_t {
  None,
  SiluGate,  // y = silu(gate) * up, silu(v) = v / (1 + exp(-v)); needs a weight from pack_gate_up
  GeluTanhGate,  // y = gelu(gate) * up; also needs a weight from pack_gate_up
  GeluTanh,      // y = gelu(v) = v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v³)))
};

constexpr bool is_gated(Activation activation) {
  return activation == Activation::SiluGate || activation == Activation::GeluTanhGate;
}

// Applied to a product before it is stored:
// y = activation(x · Wᵀ + bias) + residual.
struct Epilogue {
  const float* bias = nullptr;  // w.rows() values; if gated, as many for gate, then for up
  Activation activation = Activation::None;
  const float* residual = nullptr;  // [x.rows(), w.rows()]; may be y itself
  Index residual_stride = 0;        // elements between rows of `residual`
};

}  // namespace hone::kernels
