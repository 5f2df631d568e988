// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "hone/core/index.h"
#include "hone/train/linalg/cqrrpt.h"

namespace hone::linalg {

struct LstsqOptions {
  CqrrptOptions sketch{.gamma = 4, .nonzeros = 8};
  Index max_iterations = 100;
};

struct LstsqResult {
  at::Tensor x = {};  // [n] or [n, c], like b
  Index rank = 0;     // of A, as in cqrrpt
  Index iterations = 0;
  bool has_converged = false;
};

// Minimizes |A x - b| for A [m, n] and b [m] or [m, c], both in f32 or both in f64. Does not form
// the q of a QR factorization. Runs LSQR (Paige and Saunders, 1982) on A R^-1, where R is from the
// pivoted QR of a sketch of A. The rate of convergence then does not depend on A. Starts from the
// solution of the sketched problem (Rokhlin and Tygert, 2008; Epperly, arXiv 2311.04362). If A does
// not have full column rank, x is the basic solution: 0 for columns that depend on those pivoted
// before.
//
// CPU only. Throws like cqrrpt(), also for b. Throws Error{InvalidArgument} if b has another size
// or type, or max_iterations is below 1.
LstsqResult lstsq_sketched(const at::Tensor& a, const at::Tensor& b,
                           const LstsqOptions& options = {});

}  // namespace hone::linalg
