// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "hone/kernels/paco/part_factor.h"
#include "hone/kernels/paco/ridge_distance.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::test {

using Doubles = std::vector<double>;

inline constexpr double kDoubleEpsilon = 0x1p-52;
inline constexpr double kDoubleNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kDoubleInfinity = std::numeric_limits<double>::infinity();

inline Doubles zeros(Index count) { return Doubles(static_cast<std::size_t>(count)); }

// Standard normal.
inline Doubles normal_values(Index count, std::uint64_t seed, double deviation = 1) {
  PhiloxStream random(seed, 3);
  Doubles values = zeros(count);
  for (double& value : values) {
    const double radius = std::sqrt(-2 * std::log(random.uniform_double()));
    value = deviation * radius * std::cos(2 * std::numbers::pi * random.uniform_double());
  }
  return values;
}

inline Doubles whole_values(Index count, std::uint64_t seed, int limit) {
  const std::vector<float> values = random_integers(count, seed, limit);
  return Doubles(values.begin(), values.end());
}

inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Every element within tolerance times the largest expected magnitude.
inline void expect_near(const Doubles& got, const Doubles& want, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double scale = 1e-300;
  for (const double value : want) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * scale) << what << " at " << i;
}

// Doubles that end where the next page must not be touched.
class GuardedDoubles {
 public:
  explicit GuardedDoubles(const Doubles& values) : memory_(std::vector<float>(2 * values.size())) {
    std::copy(values.begin(), values.end(), data());
  }
  double* data() const { return reinterpret_cast<double*>(memory_.data()); }

 private:
  GuardedFloats memory_;
};

// Solves a x = b for symmetric positive definite a [n, n] by elimination; adds log det a to
// *logdet where that is not null.
inline Doubles solve_dense(Doubles a, Doubles b, double* logdet = nullptr) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (logdet != nullptr) *logdet += std::log(a[i * n + i]);
    for (std::size_t j = i + 1; j < n; ++j) {
      const double share = a[j * n + i] / a[i * n + i];
      for (std::size_t k = i; k < n; ++k) a[j * n + k] -= share * a[i * n + k];
      b[j] -= share * b[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  return b;
}

// The metrics of a batch and what ridge_gram makes of them.
struct Metric {
  Index batch = 0, rank = 0, dim = 0;
  Doubles factor = {}, delta = {}, chol = {}, logdet = {};

  Metric(Index batch_in, Index rank_in, Index dim_in, Doubles factor_in, Doubles delta_in,
         Executor& executor = serial_executor())
      : batch(batch_in),
        rank(rank_in),
        dim(dim_in),
        factor(std::move(factor_in)),
        delta(std::move(delta_in)),
        chol(zeros(batch * rank * rank)),
        logdet(zeros(batch)) {
    chol.assign(chol.size(), -1.0);
    ridge_gram({.batch = batch,
                .rank = rank,
                .dim = dim,
                .factor = factor.data(),
                .delta = delta.data(),
                .chol = chol.data(),
                .logdet = logdet.data()},
               executor);
  }

  // delta I + A A^T of one image.
  Doubles sigma(Index image) const {
    Doubles result = zeros(dim * dim);
    const double* a = factor.data() + image * rank * dim;
    for (Index i = 0; i < dim; ++i) {
      for (Index j = 0; j < dim; ++j) {
        double& sum = result[static_cast<std::size_t>(i * dim + j)];
        if (i == j) sum = delta[static_cast<std::size_t>(image)];
        for (Index r = 0; r < rank; ++r) sum += a[r * dim + i] * a[r * dim + j];
      }
    }
    return result;
  }
};

struct Distances {
  Doubles y, w, q;
};

inline RidgeDistanceArgs distance_args(const Metric& metric, const Doubles& x, Distances& out) {
  const Index count = std::max<Index>(metric.batch, 1);
  const Index rows = static_cast<Index>(x.size()) / count / metric.dim;
  out = {zeros(metric.batch * rows * metric.rank), zeros(metric.batch * rows * metric.dim),
         zeros(metric.batch * rows)};
  return {.batch = metric.batch,
          .rows = rows,
          .rank = metric.rank,
          .dim = metric.dim,
          .factor = metric.factor.data(),
          .chol = metric.chol.data(),
          .delta = metric.delta.data(),
          .x = x.data(),
          .y = out.y.data(),
          .w = out.w.data(),
          .q = out.q.data()};
}

inline Distances distances_of(const Metric& metric, const Doubles& x,
                              Executor& executor = serial_executor()) {
  Distances out;
  ridge_distance(distance_args(metric, x, out), executor);
  return out;
}

struct DistanceGrads {
  Doubles x, factor, delta;
};

inline DistanceGrads grads_of(const Metric& metric, const Distances& at, const Doubles& grad_q,
                              Executor& executor = serial_executor()) {
  DistanceGrads out{Doubles(at.w.size(), -1.0), Doubles(metric.factor.size(), -1.0),
                    Doubles(metric.delta.size(), -1.0)};
  ridge_distance_grad({.batch = metric.batch,
                       .rows = static_cast<Index>(at.q.size()) / std::max<Index>(metric.batch, 1),
                       .rank = metric.rank,
                       .dim = metric.dim,
                       .y = at.y.data(),
                       .w = at.w.data(),
                       .grad_q = grad_q.data(),
                       .grad_x = out.x.data(),
                       .grad_factor = out.factor.data(),
                       .grad_delta = out.delta.data()},
                      executor);
  return out;
}

// The factor of the parts of two views, each [batch, parts, dim].
inline Doubles factor_of(Index batch, Index parts, const Doubles& z1, const Doubles& z2,
                         Executor& executor = serial_executor()) {
  const Index dim = static_cast<Index>(z1.size()) / batch / parts;
  Doubles factor = zeros(batch * 2 * (parts - 1) * dim);
  part_factor({.batch = batch,
               .parts = parts,
               .dim = dim,
               .z1 = z1.data(),
               .z2 = z2.data(),
               .factor = factor.data()},
              executor);
  return factor;
}

}  // namespace hone::kernels::test
