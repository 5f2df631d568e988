// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// The activation of a gated linear unit (Shazeer, arXiv 2002.05202): silu(z) = z / (1 + exp(-z)) or
// gelu(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z³))).
enum class Gate { Silu, GeluTanh };

// out = act(gate) up, where a row of gate_up is gate, then up. An element's bits depend only on its
// own gate and up. (The epilogue of the runtime's gemm computes the same.)
struct GluArgs {
  Index rows = 0, cols = 0;
  const float* gate_up = nullptr;  // [rows, 2 cols]
  float* out = nullptr;            // [rows, cols]
  Gate gate = Gate::Silu;
};

struct GluGradArgs {
  Index rows = 0, cols = 0;
  const float* gate_up = nullptr;   // [rows, 2 cols]
  const float* grad_out = nullptr;  // [rows, cols]
  float* grad_gate_up = nullptr;    // [rows, 2 cols]; may be gate_up
  Gate gate = Gate::Silu;
};

// Throws Error{InvalidArgument} for a negative size.
void glu(const GluArgs& args, Executor& executor = serial_executor());
void glu_grad(const GluGradArgs& args, Executor& executor = serial_executor());

// References: plain loops in double.
void glu_ref(const GluArgs& args);
void glu_grad_ref(const GluGradArgs& args);

}  // namespace hone::kernels
