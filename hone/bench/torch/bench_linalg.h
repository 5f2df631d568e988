// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/bench/bench_run.h"

namespace hone::bench {

struct BenchLinalgOptions {
  std::vector<std::string> ops{"rsvd", "cqrrpt", "qrcp", "lstsq", "srht", "sparse"};
  std::vector<std::string> shapes{};  // "8192x256"; empty: the default of each operation
  Index rank = 100;                   // triplets of rsvd; numbers that srht keeps of a row
  std::vector<std::string> dtypes{"f32"};
  std::vector<std::string> spectra{"gaussian"};  // see Spectrum; not for srht and sparse
  std::vector<std::string> against{"svd",   "svd_lowrank", "qr",   "geqp3",
                                   "gelsy", "dense",       "loop", "sparse_mm"};
  int threads = 0;  // LibTorch threads, for all sides; 0: usable_cpus()
};

// Compares hone::linalg and its sketches with LibTorch and LAPACK on seeded matrices [m, n]. Each
// row has the error of its result, computed in f64. Cases are "rsvd/2000x2000/f32/gaussian" of
//
//   rsvd    randomized_svd of `rank` triplets, against svd_lowrank (see cheapest_svd_lowrank) with
//           at most 1.001 times hone's error and, in its own case, at::linalg_svd; rel_error is
//           |A - u s v^T| / |A|; error_over_optimum is relative to the best approximation
//   cqrrpt  pivoted QR with q, against at::linalg_qr (qr, which does not pivot) and SciPy's geqp3;
//           rel_error is |A[:, pivots] - q r| / |A|
//   qrcp    the same for pivoted_qr
//   lstsq   lstsq_sketched, against at::linalg_lstsq by gelsy and by gels (qr); rel_error compares
//           x, and error_over_optimum compares |A x - b|, with those of gelsd in f64
//   srht    the sketch of every row by Srht, against a loop of one row at a time and the product
//           with S (dense); if n is a power of two, a case "/fwht" has the Hadamard transform of
//           the rows alone, with gb_per_s and its share of the memory bandwidth
//   sparse  S A with 1.25 n rows and 4 nonzeros in each column of S, against LibTorch's products
//           with S as a sparse matrix (sparse_mm) and with a Gaussian matrix (dense); distortion is
//           the largest |sigma - 1| over singular values of S Q, Q a basis of the columns of A
//
// Further fields are orthogonality |q^T q - I| (Frobenius; the larger of u and v), detected_rank,
// and provider, the origin of the code. Throws Error{InvalidArgument} for unknown names, sizes
// below 1 and ranks above the shorter side, before anything is measured.
void bench_linalg(const BenchLinalgOptions& options, BenchRun& run);

}  // namespace hone::bench
