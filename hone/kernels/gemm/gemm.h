// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "hone/core/thread/executor.h"
#include "hone/kernels/gemm/epilogue.h"
#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/kernels/gemm/packed_rows.h"

namespace hone::kernels {

// One output of a gemm call: y[x.rows(), w.rows()] = epilogue(x · Wᵀ).
struct GemmOutput {
  const PackedMatrix* weight = nullptr;
  float* y = nullptr;
  Index y_stride = 0;  // elements between rows of y
  Epilogue epilogue = {};
};

struct GemmArgs {
  const PackedRows& x;
  std::span<const GemmOutput> outputs;  // products that share x (q, k, v) run in one region
  Executor& executor;
  // If false, the call returns when all outputs are stored, even if a preempted worker may still
  // read x, weights and bias. Keep these until executor.wait_left(ticket) returns.
  bool wait_for_stragglers = true;
};

// Numerics: every output has one accumulator, which adds the columns in ascending order. Columns
// are never split between threads. A row's result therefore depends only on that row and the
// weights, not on x.rows(), the number of threads or the other outputs of the call.
//   Int8:    acc = fma(float(isum), scale_w * scale_x, acc) per 32 columns (Half6: per 16), with an
//            exact isum. Min4 and Min5 then compute
//            acc = fma(minimum_w, float(-Σ codes of x) * scale_x, acc).
//            Bit-identical on all vector instruction sets.
//   Float32: acc = fma(w, x, acc) per column, where w is the decoded weight
// If there is no vector kernel, a plain kernel with double accumulation runs.
PublishTicket gemm(const GemmArgs& args);

// Packs x as the weight prefers, then multiplies. For single products and tests.
void gemm(const float* x, Index rows, Index stride, const GemmOutput& output, Executor& executor);

// Reference: plain loops over unpacked rows in double, with one rounding at the end.
void gemm_ref(const PackedRows& x, const GemmOutput& output);

// Returns the name of the kernel that gemm() would use: "amx", "avx512vnni", "avx512", "avxvnni",
// "avx2", "plain", or "highway:" and the strongest enabled family. "amx" leaves up to 13 rows, and
// 8-bit codes with zero points, to "avx512vnni".
//
// HONE_FORCE_KERNEL selects a kernel by the name of the operation, as in "gemm_q4:avx2". The names
// are gemm_f32, gemm_f16 and gemm_bf16; gemm_q8 and gemm_q4 for Int8 activations; gemm_q8_f32 and
// gemm_q4_f32 for Float32. q8 and q4 are the bits of the codes, whatever their scales and minimums.
std::string gemm_kernel_name(const PackedMatrix& weight, Act act);

}  // namespace hone::kernels
