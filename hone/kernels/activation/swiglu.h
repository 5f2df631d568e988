// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/executor.h"

namespace hone::kernels {

// out = silu(gate) up, silu(z) = z / (1 + exp(-z)); a row of gate_up is gate, then up. An element's
// bits depend only on its own gate and up. (The runtime's gemm does the same in its epilogue.)
struct SwiGluArgs {
  Index rows = 0, cols = 0;
  const float* gate_up = nullptr;  // [rows, 2 cols]
  float* out = nullptr;            // [rows, cols]
};

struct SwiGluGradArgs {
  Index rows = 0, cols = 0;
  const float* gate_up = nullptr;   // [rows, 2 cols]
  const float* grad_out = nullptr;  // [rows, cols]
  float* grad_gate_up = nullptr;    // [rows, 2 cols]; may be gate_up
};

// Error{InvalidArgument} on a negative size.
void swiglu(const SwiGluArgs& args, Executor& executor = serial_executor());
void swiglu_grad(const SwiGluGradArgs& args, Executor& executor = serial_executor());

// Plain loops in double.
void swiglu_ref(const SwiGluArgs& args);
void swiglu_grad_ref(const SwiGluGradArgs& args);

}  // namespace hone::kernels
