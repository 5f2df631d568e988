// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "hone/core/executor.h"
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
  // false: return when all outputs are stored although a preempted worker may still be reading x,
  // weights and bias; keep those until executor.wait_left(ticket). Only for x.rows() <=
  // kPublishRows; larger calls always wait.
  bool wait_for_stragglers = true;
};

// Up to this many rows a call runs as one Executor::parallel_publish region.
inline constexpr Index kPublishRows = 16;

// Numerics. Every output has one accumulator and takes its columns in ascending order; columns are
// never split between threads. Hence a row's result depends on that row and the weights alone: not
// on x.rows(), the thread count, or the other outputs of the call.
//   Int8:    acc = fma(float(isum), scale_w * scale_x, acc) per 32 columns, isum exact; the same
//   bits
//            on every vector instruction set
//   Float32: acc = fma(w, x, acc) per column, w = the decoded weight
// Where no vector kernel exists a plain one with double accumulation runs.
PublishTicket gemm(const GemmArgs& args);

// Packs x as the weight prefers and multiplies: for single products and tests.
void gemm(const float* x, Index rows, Index stride, const GemmOutput& output, Executor& executor);

// The oracle: plain loops over unpacked rows in double, one rounding at the end.
void gemm_ref(const PackedRows& x, const GemmOutput& output);

// The kernel that would run: "avx512vnni", "avx512", "avxvnni", "avx2", "highway:AVX3", "plain".
// HONE_FORCE_KERNEL chooses one by op name gemm_f32, gemm_f16, gemm_bf16, gemm_q8, gemm_q4
// (Int8 activations) or gemm_q8_f32, gemm_q4_f32 (Float32): "gemm_q4:avx2".
std::string gemm_kernel_name(const PackedMatrix& weight, Act act);

}  // namespace hone::kernels
