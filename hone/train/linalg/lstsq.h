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
  at::Tensor x = {};  // [n] or [n, c], as b
  Index rank = 0;     // of A, as cqrrpt finds it
  Index iterations = 0;
  bool has_converged = false;
};

// Minimizes |A x - b| for A [m, n] and b [m] or [m, c] in one of f32 and f64, of which q of QR is
// never formed: LSQR (Paige and Saunders, 1982) on A R^-1, where R is that of the pivoted QR of a
// sketch of A, so that it converges at a rate that does not depend on A, from the solution of the
// sketched problem (Rokhlin and Tygert, 2008; Epperly, arXiv 2311.04362). Where A has not full
// column rank, x is the basic solution: 0 for columns that depend on those pivoted before.
//
// CPU only. Errors as cqrrpt, for b too; Error{InvalidArgument} on a b of other sizes or type and
// on less than 1 iteration.
LstsqResult lstsq_sketched(const at::Tensor& a, const at::Tensor& b,
                           const LstsqOptions& options = {});

}  // namespace hone::linalg
