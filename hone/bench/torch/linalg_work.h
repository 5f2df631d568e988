// SPDX-License-Identifier: Apache-2.0
// Matrices with a known best approximation, and measures of factorizations, all in f64.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "hone/core/index.h"
#include "hone/train/linalg/pivoted_qr.h"
#include "hone/train/linalg/randomized_svd.h"

namespace hone::bench {

// Singular values of a matrix. Gaussian: those of independent normal entries. Power: 1/j for j = 1,
// 2, …. Step: 1 up to the rank in question, then 1/100.
enum class Spectrum { Gaussian, Power, Step };
Spectrum parse_spectrum(std::string_view text);  // throws Error{InvalidArgument} for another name

struct SpectralMatrix {
  at::Tensor a;         // [m, n] in the requested type
  at::Tensor spectrum;  // f64 [min(m, n)], descending; undefined for Gaussian
  // The Frobenius norm of A minus its best approximation of `rank`.
  double best_error(Index rank) const;
};
SpectralMatrix make_matrix(Spectrum spectrum, Index m, Index n, Index rank, at::ScalarType type);

at::Tensor gaussian_matrix(Index m, Index n, std::uint64_t seed, at::ScalarType type);

double frobenius(const at::Tensor& x);
// |got - want| / |want|; 0 where both are 0.
double relative_difference(const at::Tensor& got, const at::Tensor& want);
double residual(const at::Tensor& a, const linalg::Svd& svd);       // |A - u s v^T|
double residual(const at::Tensor& a, const linalg::PivotedQr& qr);  // |A[:, pivots] - q r|
double orthogonality(const at::Tensor& q);                          // |q^T q - I|
// The number of entries of the diagonal of R that are larger than 2 u^0.95 times the first, where u
// is the roundoff of the type: the rank that cqrrpt finds.
Index detected_rank(const at::Tensor& r);
// The largest |sigma - 1| over singular values sigma of a sketch S Q of orthonormal columns Q.
double distortion(const at::Tensor& sketched);

}  // namespace hone::bench
