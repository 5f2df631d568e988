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
  // If false, the call returns when all outputs are stored, although a preempted worker may still
  // be reading x, weights and bias; keep those until executor.wait_left(ticket) returns.
  bool wait_for_stragglers = true;
};

// Numerics: every output has one accumulator, which adds the columns in ascending order; columns
// are never split between threads. A row's result therefore depends only on that row and the
// weights, not on x.rows(), the number of threads or the other outputs of the call.
//   Int8:    acc = fma(float(isum), scale_w * scale_x, acc) per 32 columns (Half6: per 16), with an
//            exact isum; Min4 and Min5 then acc = fma(minimum_w, float(-Σ codes of x) * scale_x,
//            acc); bit-identical on all vector instruction sets
//   Float32: acc = fma(w, x, acc) per column, with w the decoded weight
// If there is no vector kernel, a plain one with double accumulation runs.
PublishTicket gemm(const GemmArgs& args);

// Packs x as the weight prefers and multiplies. For single products and tests.
void gemm(const float* x, Index rows, Index stride, const GemmOutput& output, Executor& executor);

// The oracle: plain loops over unpacked rows in double, one rounding at the end.
void gemm_ref(const PackedRows& x, const GemmOutput& output);

// The kernel that gemm() would use: "amx" (which leaves up to 13 rows, and codes of 8 bits with
// zero points, to "avx512vnni"), "avx512vnni", "avx512", "avxvnni", "avx2", "plain", or "highway:"
// and the strongest family that is enabled. HONE_FORCE_KERNEL selects one by the name of the
// operation, as in "gemm_q4:avx2": gemm_f32, gemm_f16, gemm_bf16, gemm_q8, gemm_q4 (Int8
// activations) or gemm_q8_f32, gemm_q4_f32 (Float32); q8 and q4 are the bits of the codes, whatever
// their scales and minimums.
std::string gemm_kernel_name(const PackedMatrix& weight, Act act);

}  // namespace hone::kernels
