// SPDX-License-Identifier: Apache-2.0
// Covariances and their distances by dense textbook loops in long double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hone/core/index.h"
#include "hone/core/philox.h"

namespace hone::kernels::oracle {

using Values = std::vector<double>;
using Real = long double;

inline Values random_doubles(Index count, std::uint64_t seed, double size = 1) {
  PhiloxStream random(seed, 7);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = size * (2 * random.uniform_double() - 1);
  return values;
}

// Square.
struct Matrix {
  explicit Matrix(std::size_t size) : n(size), at(size * size) {}
  Real& operator()(std::size_t i, std::size_t j) { return at[i * n + j]; }
  Real operator()(std::size_t i, std::size_t j) const { return at[i * n + j]; }
  std::size_t n;
  std::vector<Real> at;
};

inline Matrix matrix_of(const double* values, std::size_t n) {
  Matrix out(n);
  for (std::size_t i = 0; i < n * n; ++i) out.at[i] = values[i];
  return out;
}

inline Matrix weighted_sum(Real a, const Matrix& x, Real b, const Matrix& y) {
  Matrix out(x.n);
  for (std::size_t i = 0; i < out.at.size(); ++i) out.at[i] = a * x.at[i] + b * y.at[i];
  return out;
}

// ε I + Σ_k (z_k - mean)ᵀ (z_k - mean) / max(1, parts - 1) of parts z [parts, dim].
inline Matrix covariance(const std::vector<Real>& z, std::size_t parts, Real epsilon) {
  const std::size_t dim = z.size() / parts;
  std::vector<Real> mean(dim);
  for (std::size_t i = 0; i < z.size(); ++i) mean[i % dim] += z[i] / static_cast<Real>(parts);
  Matrix out(dim);
  for (std::size_t i = 0; i < dim; ++i) {
    for (std::size_t j = 0; j < dim; ++j) {
      for (std::size_t k = 0; k < parts; ++k)
        out(i, j) += (z[k * dim + i] - mean[i]) * (z[k * dim + j] - mean[j]);
      out(i, j) /= static_cast<Real>(parts > 1 ? parts - 1 : 1);
    }
    out(i, i) += epsilon;
  }
  return out;
}

// By elimination without pivots.
inline Real log_det(Matrix a) {
  Real sum = 0;
  for (std::size_t k = 0; k < a.n; ++k) {
    sum += std::log(a(k, k));
    for (std::size_t i = k + 1; i < a.n; ++i) {
      const Real factor = a(i, k) / a(k, k);
      for (std::size_t j = k; j < a.n; ++j) a(i, j) -= factor * a(k, j);
    }
  }
  return sum;
}

// The logarithm of a positive definite matrix, by Jacobi rotations of full matrices.
inline Matrix log_matrix(Matrix a) {
  const std::size_t n = a.n;
  Matrix vectors(n), out(n);
  for (std::size_t i = 0; i < n; ++i) vectors(i, i) = 1;
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a(p, q) == 0) continue;
        const Real angle = std::atan(2 * a(p, q) / (a(q, q) - a(p, p))) / 2;
        const Real c = std::cos(angle), s = std::sin(angle);
        for (std::size_t k = 0; k < n; ++k) {
          const Real x = a(k, p), y = a(k, q), v = vectors(k, p), w = vectors(k, q);
          a(k, p) = c * x - s * y, a(k, q) = s * x + c * y;
          vectors(k, p) = c * v - s * w, vectors(k, q) = s * v + c * w;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const Real x = a(p, k), y = a(q, k);
          a(p, k) = c * x - s * y, a(q, k) = s * x + c * y;
        }
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t k = 0; k < n; ++k)
        out(i, j) += vectors(i, k) * std::log(a(k, k)) * vectors(j, k);
    }
  }
  return out;
}

enum class Metric { Frobenius, Stein, LogEuclidean };
constexpr Metric kMetrics[] = {Metric::Frobenius, Metric::Stein, Metric::LogEuclidean};

inline Real squared_norm(const Matrix& a) {
  Real sum = 0;
  for (const Real value : a.at) sum += value * value;
  return sum;
}

inline Real distance_of(Metric metric, const Matrix& a, const Matrix& b) {
  if (metric == Metric::Frobenius) return squared_norm(weighted_sum(1, a, -1, b));
  if (metric == Metric::LogEuclidean)
    return squared_norm(weighted_sum(1, log_matrix(a), -1, log_matrix(b)));
  return log_det(weighted_sum(0.5L, a, 0.5L, b)) - (log_det(a) + log_det(b)) / 2;
}

// The size of what is subtracted in a distance.
inline double scale_of(Metric metric, const Matrix& a, const Matrix& b) {
  if (metric == Metric::Frobenius) return static_cast<double>(squared_norm(a) + squared_norm(b));
  if (metric == Metric::LogEuclidean)
    return static_cast<double>(squared_norm(log_matrix(a)) + squared_norm(log_matrix(b)));
  return static_cast<double>(std::abs(log_det(a)) + std::abs(log_det(b))) + 1;
}

}  // namespace hone::kernels::oracle
