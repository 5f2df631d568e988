// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/function_ref.h"
#include "hone/core/index.h"

namespace hone::kernels {

// Functions of the matrix I + Aᵀ A [dim, dim] of few rows A [count, dim], by the eigenvalues of
// A Aᵀ [count, count] alone. With h(x) = ln(1 + x) / x, h(0) = 1,
//   ln(I + Aᵀ A) = Aᵀ h(A Aᵀ) A.
class RowSpectrum {
 public:
  RowSpectrum(Index count, Index dim);

  // A = scale rows.
  void load(const double* rows, double scale);

  // ln det(I + Aᵀ A).
  double log_det() const;
  // A (I + Aᵀ A)⁻¹ [count, dim].
  void divide(double* out) const;
  // h(A Aᵀ)^½ A [count, dim]: the rows F with Fᵀ F = ln(I + Aᵀ A).
  void log_root(double* out) const;

  // Replaces rows x [count, dim] by x R.
  using TimesR = FunctionRef<void(const double* x, Index count, double* out)>;
  // From the symmetric gradient R with respect to ln(I + Aᵀ A) to the one with respect to A
  // [count, dim], with C = A Aᵀ and divided differences instead of derivatives of eigenvectors
  // (Higham, "Functions of Matrices", theorem 3.11):
  //   2 h(C) A R + 2 Dh[C](A R Aᵀ) A,   Dh[C](W) = V (h[λ_i, λ_j] ∘ Vᵀ W V) Vᵀ.
  void log_grad(TimesR times_r, double* grad) const;

 private:
  // f(A Aᵀ) A.
  template <class Function>
  void apply(const Function& f, double* out) const;

  Index count_ = 0, dim_ = 0;
  std::vector<double> rows_, gram_, values_, vectors_;
  std::vector<double> rotated_;  // vectors times A: rows at right angles
};

// h(x) for x >= 0, and (h(x) - h(y)) / (x - y), h'(x) where they are equal, to a few parts in
// 10^14.
double log_ratio(double x);
double log_ratio_slope(double x, double y);

}  // namespace hone::kernels
