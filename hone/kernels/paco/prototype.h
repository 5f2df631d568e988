// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"
#include "hone/kernels/paco/view_rows.h"

namespace hone::kernels {

// Updates the mean covariances of the classes with a batch. Processes every image in order, with
// the mean Σ̄ = ½(Σ_1 + Σ_2) of its views and the matrix P of its class: P <- Σ̄ if the class was
// never seen, otherwise P <- momentum P + (1 - momentum) Σ̄. The class count grows by one. After
// images 1 … n of a class, P is
//   momentumⁿ P + (1 - momentum) Σ_j momentum^(n-j) Σ̄_j,   for a new class
//   momentum^(n-1) Σ̄_1 + (1 - momentum) Σ_(j>=2) momentum^(n-j) Σ̄_j.
// Symmetric matrices stay symmetric, bit for bit.
struct PrototypeUpdate {
  Index classes = 0;
  const Index* label = nullptr;  // [batch], in [0, classes)
  double momentum = 0.9;         // in [0, 1]
  bool diagonal = false;         // keeps only the diagonals
  double* matrices = nullptr;    // [classes, dim, dim]; with `diagonal` [classes, dim]
  Index* counts = nullptr;       // [classes]: images seen; if 0, the matrix is not read
};

// Throws Error{InvalidArgument} like check_views(), and for labels and momentum out of range.
// Nothing changes then. Results do not depend on the number of workers.
void update_prototypes(const TwoViews& views, const PrototypeUpdate& update,
                       Executor& executor = serial_executor());

}  // namespace hone::kernels
