// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "hone/kernels/paco/ridge_distance.h"

namespace hone::kernels {
namespace {

// The lower Cholesky factor of delta I + A A^T, row-major.
std::vector<double> dense_cholesky(const double* factor, Index rank, Index dim, double delta) {
  std::vector<double> chol(static_cast<std::size_t>(dim * dim));
  double* sigma = chol.data();
  for (Index i = 0; i < dim; ++i) {
    for (Index j = 0; j <= i; ++j) {
      double sum = i == j ? delta : 0;
      for (Index r = 0; r < rank; ++r) sum += factor[r * dim + i] * factor[r * dim + j];
      for (Index k = 0; k < j; ++k) sum -= sigma[i * dim + k] * sigma[j * dim + k];
      sigma[i * dim + j] = i == j ? std::sqrt(sum) : sum / sigma[j * dim + j];
    }
  }
  return chol;
}

void solve(const std::vector<double>& chol, Index dim, double* w) {
  const double* sigma = chol.data();
  for (Index i = 0; i < dim; ++i) {
    for (Index k = 0; k < i; ++k) w[i] -= sigma[i * dim + k] * w[k];
    w[i] /= sigma[i * dim + i];
  }
  for (Index i = dim - 1; i >= 0; --i) {
    for (Index k = i + 1; k < dim; ++k) w[i] -= sigma[k * dim + i] * w[k];
    w[i] /= sigma[i * dim + i];
  }
}

}  // namespace

void ridge_distance_ref(const RidgeDistanceArgs& args) {
  for (Index image = 0; image < args.batch; ++image) {
    const double* factor = args.factor + image * args.rank * args.dim;
    const auto chol = dense_cholesky(factor, args.rank, args.dim, args.delta[image]);
    for (Index row = image * args.rows; row < (image + 1) * args.rows; ++row) {
      const double* x = args.x + row * args.dim;
      std::vector<double> w(x, x + args.dim);
      solve(chol, args.dim, w.data());
      args.q[row] = 0;
      for (Index c = 0; c < args.dim; ++c) args.q[row] += x[c] * w[static_cast<std::size_t>(c)];
      for (Index i = 0; i < args.rank; ++i) {
        double& y = args.y[row * args.rank + i] = 0;
        for (Index c = 0; c < args.dim; ++c)
          y += factor[i * args.dim + c] * w[static_cast<std::size_t>(c)];
      }
      for (Index c = 0; args.w != nullptr && c < args.dim; ++c)
        args.w[row * args.dim + c] = w[static_cast<std::size_t>(c)];
    }
  }
}

}  // namespace hone::kernels
