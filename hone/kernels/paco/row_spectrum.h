// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/function_ref.h"
#include "hone/core/index.h"

namespace hone::kernels {

// Functions of the matrix I + Aᵀ A [dim, dim] of few rows A [count, dim], computed only from the
// eigenvalues of A Aᵀ [count, count]. With h(x) = ln(1 + x) / x, h(0) = 1,
//   ln(I + Aᵀ A) = Aᵀ h(A Aᵀ) A.
class RowSpectrum {
 public:
  RowSpectrum(Index count, Index dim);

  // Sets A = scale rows.
  void load(const double* rows, double scale);

  // Returns ln det(I + Aᵀ A).
  double log_det() const;
  // Writes A (I + Aᵀ A)⁻¹ [count, dim].
  void divide(double* out) const;
  // Writes h(A Aᵀ)^½ A [count, dim]: the rows F with Fᵀ F = ln(I + Aᵀ A).
  void log_root(double* out) const;

  // Replaces rows x [count, dim] by x R.
  using TimesR = FunctionRef<void(const double* x, Index count, double* out)>;
  // Computes the gradient with respect to A [count, dim] from the symmetric gradient R with respect
  // to ln(I + Aᵀ A). Uses C = A Aᵀ, and divided differences in place of derivatives of eigenvectors
  // (Higham, "Functions of Matrices", theorem 3.11):
  //   2 h(C) A R + 2 Dh[C](A R Aᵀ) A,   Dh[C](W) = V (h[λ_i, λ_j] ∘ Vᵀ W V) Vᵀ.
  void log_grad(TimesR times_r, double* grad) const;

 private:
  // Writes f(A Aᵀ) A.
  template <class Function>
  void apply(const Function& f, double* out) const;

  Index count_ = 0, dim_ = 0;
  std::vector<double> rows_, gram_, values_, vectors_;
  std::vector<double> rotated_;  // vectors times A; its rows are orthogonal
};

// log_ratio(x) is h(x) for x >= 0. log_ratio_slope(x, y) is (h(x) - h(y)) / (x - y), or h'(x) if
// they are equal. Both are accurate to a few parts in 10^14.
double log_ratio(double x);
double log_ratio_slope(double x, double y);

}  // namespace hone::kernels
