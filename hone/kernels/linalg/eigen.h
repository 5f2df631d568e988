// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/index.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// The eigenvalues of a symmetric matrix in falling order, and orthonormal eigenvectors.
struct SymmetricEigen {
  std::vector<double> values;   // [n]
  std::vector<double> vectors;  // [n, n]; row i belongs to values[i]
};

// Decomposes the symmetric matrix [n, n] of which only the lower triangle is read. Reduces it to
// tridiagonal form by Householder reflections and runs implicit QL iterations (Bowdler, Martin,
// Reinsch and Wilkinson, "The QR and QL algorithms for symmetric matrices", 1968). The result does
// not depend on the number of threads. Throws Error{InvalidArgument} for elements that are not
// finite.
SymmetricEigen decompose_symmetric(std::span<const double> matrix, Index n, Executor& executor);

}  // namespace hone::kernels
