// SPDX-License-Identifier: Apache-2.0
// Contestants for hone's linear algebra.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "hone/bench/bench_run.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "hone/train/linalg/randomized_svd.h"

namespace hone::bench {

// torch.svd_lowrank(A, q, niter), which is not part of LibTorch, by the same operators (algorithm
// 5.1 of Halko, Martinsson and Tropp, arXiv 0909.4061). Returns q triplets, from a seeded Gaussian
// test matrix and `niter` power iterations with a QR at each half.
linalg::Svd svd_lowrank(const at::Tensor& a, Index q, Index niter, std::uint64_t seed = 11);

// Views of the first `rank` triplets.
linalg::Svd leading(const linalg::Svd& svd, Index rank);

// The cheapest settings, by the operations of products and factorizations, with which svd_lowrank
// has an error |A - u s v^T| of at most `most` for `rank` triplets. Tries up to 10 iterations and
// an oversampling of up to 3 ranks. Returns nullopt if none suffices.
struct LowrankSettings {
  Index oversample = 0, niter = 0;
};
std::optional<LowrankSettings> cheapest_svd_lowrank(const at::Tensor& a, Index rank, double most);

// Adds LAPACK's pivoted QR with q, run by SciPy in another process (bench/peers/pivoted_qr.py), as
// the contestant "geqp3". Its row has its own rel_error, orthogonality and detected_rank.
void add_geqp3(const at::Tensor& a, int threads, BenchCase& bench_case);

// Computes S x for each row x of `a` [rows, op.cols], where S is an Srht. Uses the textbook loop
// over one row at a time: signs, Hadamard transform, choice. Returns [rows, op.rows].
at::Tensor srht_loop(const at::Tensor& a, const kernels::SketchOp& op);

}  // namespace hone::bench
