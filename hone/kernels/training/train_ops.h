// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/executor.h"

namespace hone::kernels::training {

// The row-wise steps of a decoder block and their gradients, f32, row-major and contiguous unless a
// stride is given. Outputs do not overlap inputs unless said so. Results do not depend on the
// number of workers. Each function has a plain twin in double precision, …_ref.

// sum = x + delta;  inverse_rms = 1/√(mean(sum²) + eps);  normed = sum · inverse_rms · weight.
struct AddRmsNorm {
  Index rows = 0, dim = 0;
  const float* x = nullptr;       // [rows, dim]
  const float* delta = nullptr;   // [rows, dim]; null: zero, and `sum` is not written
  const float* weight = nullptr;  // [dim]
  double eps = 1e-5;
  float* sum = nullptr;          // [rows, dim]
  float* normed = nullptr;       // [rows, dim]
  float* inverse_rms = nullptr;  // [rows]
};
void add_rms_norm(const AddRmsNorm& op, Executor& executor);

// Gradient of the above by sum (= by x = by delta) and by weight. With r = inverse_rms, x = sum:
//   grad_x = grad_sum + r·(g·w) - x·r³·⟨g·w, x⟩/dim;   grad_weight = Σ_rows g·x·r.
struct AddRmsNormGrad {
  Index rows = 0, dim = 0;
  const float* sum = nullptr;
  const float* weight = nullptr;
  const float* inverse_rms = nullptr;
  const float* grad_normed = nullptr;
  const float* grad_sum = nullptr;  // [rows, dim]; null: zero
  float* grad_x = nullptr;          // [rows, dim]; may be grad_sum
  float* grad_weight = nullptr;     // [dim], overwritten
};
void add_rms_norm_grad(const AddRmsNormGrad& op, Executor& executor);

// out = silu(gate) · up, silu(z) = z/(1 + e^-z); a row of gate_up is gate, then up.
struct SwiGlu {
  Index rows = 0, dim = 0;
  const float* gate_up = nullptr;  // [rows, 2·dim]
  float* out = nullptr;            // [rows, dim]
};
void swiglu(const SwiGlu& op, Executor& executor);

struct SwiGluGrad {
  Index rows = 0, dim = 0;
  const float* gate_up = nullptr;   // [rows, 2·dim]
  const float* grad_out = nullptr;  // [rows, dim]
  float* grad_gate_up = nullptr;    // [rows, 2·dim]; may be gate_up
};
void swiglu_grad(const SwiGluGrad& op, Executor& executor);

// Turns pairs (i, i + head_dim/2) of every head by the angle of the row's position, row mod
// positions: a' = a·cos - b·sin, b' = b·cos + a·sin. `inverse` turns back (the gradient).
struct Rope {
  Index rows = 0, positions = 0, heads = 0, head_dim = 0;
  const float* in = nullptr;  // row r at in + r·in_stride: heads · head_dim floats
  Index in_stride = 0;
  float* out = nullptr;  // may be in
  Index out_stride = 0;
  const float* cos = nullptr;  // [positions, head_dim/2]
  const float* sin = nullptr;
  bool inverse = false;
};
void rope(const Rope& op, Executor& executor);

// nats[r] = logΣ_j e^{z_j} - z_target, and z ← softmax(z) - onehot(target) in place. A target below
// 0 is ignored: 0 nats and a zero row. Logits of -infinity have probability 0; a row with a NaN,
// with +infinity or of nothing but -infinity gives NaN nats and a NaN row.
struct CrossEntropy {
  Index rows = 0, classes = 0;
  float* logits = nullptr;                // [rows, classes], overwritten when want_grad
  const std::int64_t* targets = nullptr;  // [rows], below classes
  double* nats = nullptr;                 // [rows]
  bool want_grad = true;
};
void cross_entropy(const CrossEntropy& op, Executor& executor);

void add_rms_norm_ref(const AddRmsNorm& op);
void add_rms_norm_grad_ref(const AddRmsNormGrad& op);
void swiglu_ref(const SwiGlu& op);
void swiglu_grad_ref(const SwiGluGrad& op);
void rope_ref(const Rope& op);
void cross_entropy_ref(const CrossEntropy& op);

}  // namespace hone::kernels::training
