// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/linalg/eigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/linalg/triangular.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/linalg/eigen.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/linalg/row_update-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(subtract_two_part);
HWY_EXPORT(rotate_part);

namespace {

constexpr Index kRowGrain = 16;
constexpr int kMostIterations = 60;  // of QL for one eigenvalue; two or three are usual

// A matrix, its tridiagonal form, and the orthogonal matrix whose rows become eigenvectors.
class Decomposition {
 public:
  Decomposition(std::span<const double> matrix, Index n, Executor& executor)
      : n_(n),
        executor_(executor),
        a_(matrix.begin(), matrix.end()),
        q_(a_.size()),
        diagonal_(static_cast<std::size_t>(n)),
        next_(static_cast<std::size_t>(n)) {
    for (Index row = 0; row < n; ++row) {
      for (Index col = 0; col < row; ++col) at(a_, col, row) = at(a_, row, col);
      at(q_, row, row) = 1;
    }
  }

  void reduce();   // a = Qᵀ T Q
  void iterate();  // T = Zᵀ diag(values) Z; rows of Q become those of Z Q
  SymmetricEigen sorted() const;

 private:
  struct Rotation {
    Index row;  // rotates rows `row` and row + 1
    double cosine, sine;
  };

  double& at(std::vector<double>& matrix, Index row, Index col) const {
    return matrix[static_cast<std::size_t>(row * n_ + col)];
  }
  double& diagonal(Index i) { return diagonal_[static_cast<std::size_t>(i)]; }
  double& next(Index i) { return next_[static_cast<std::size_t>(i)]; }
  void reflect(Index step);
  void find_eigenvalue(Index first);
  Index end_of_block(Index first);
  void rotate(std::span<const Rotation> rotations);

  Index n_;
  Executor& executor_;
  std::vector<double> a_, q_, diagonal_, next_;  // next_[i] couples i and i + 1
};

// Eliminates row `step` right of its superdiagonal by the reflection I - v vᵀ / h, and multiplies Q
// by it.
void Decomposition::reflect(Index step) {
  const Index first = step + 1, size = n_ - first;
  const double* row = &at(a_, step, first);
  double norm = 0;
  for (Index i = 0; i < size; ++i) norm = std::hypot(norm, row[i]);
  diagonal(step) = at(a_, step, step);
  if (size == 1 || norm == 0) {
    next(step) = row[0];
    return;
  }
  const double pivot = row[0] > 0 ? -norm : norm;
  next(step) = pivot;
  std::vector<double> v(row, row + size);
  v[0] -= pivot;
  const double h = norm * (norm + std::abs(row[0]));
  // p = A v / h, w = p - v (pᵀ v) / (2 h), A -= v wᵀ + w vᵀ
  std::vector<double> w(static_cast<std::size_t>(size));
  const auto times_v = [&](const double* from, Index rows, double* out) {
    subtract_product({.a = from,
                      .a_stride = n_,
                      .b = v.data(),
                      .b_stride = size,
                      .c = out,
                      .c_stride = 1,
                      .rows = rows,
                      .cols = 1,
                      .depth = size},
                     executor_);
  };
  times_v(&at(a_, first, first), size, w.data());
  for (double& value : w) value /= -h;
  const double half = std::inner_product(w.begin(), w.end(), v.begin(), 0.0) / (2 * h);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= half * v[i];
  executor_.parallel_for(size, kRowGrain, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      const auto k = static_cast<std::size_t>(i);
      HWY_DYNAMIC_DISPATCH(subtract_two_part)
      (&at(a_, first + i, first), v[k], w.data(), w[k], v.data(), size);
    }
  });
  // The reflection changes rows `first` and below of Q: Q -= v (vᵀ Q) / h.
  std::vector<double> mixed(static_cast<std::size_t>(n_));
  constexpr Index kColumns = 128;
  executor_.parallel_for(n_, kColumns, [&](Index begin, Index end, int) {
    for (Index i = 0; i < size; ++i) {
      HWY_DYNAMIC_DISPATCH(subtract_two_part)
      (mixed.data() + begin, -v[static_cast<std::size_t>(i)] / h, &at(q_, first + i, begin), 0,
       mixed.data() + begin, end - begin);
    }
    for (Index i = 0; i < size; ++i) {
      HWY_DYNAMIC_DISPATCH(subtract_two_part)
      (&at(q_, first + i, begin), v[static_cast<std::size_t>(i)], mixed.data() + begin, 0,
       mixed.data() + begin, end - begin);
    }
  });
}

void Decomposition::reduce() {
  for (Index step = 0; step + 1 < n_; ++step) reflect(step);
  diagonal(n_ - 1) = at(a_, n_ - 1, n_ - 1);
}

void Decomposition::rotate(std::span<const Rotation> rotations) {
  constexpr Index kColumns = 64;
  executor_.parallel_for(n_, kColumns, [&](Index begin, Index end, int) {
    for (const Rotation& one : rotations) {
      HWY_DYNAMIC_DISPATCH(rotate_part)
      (&at(q_, one.row, begin), &at(q_, one.row + 1, begin), one.cosine, one.sine, end - begin);
    }
  });
}

// The last row of the block of T that begins at `first` and is coupled to nothing below.
Index Decomposition::end_of_block(Index first) {
  Index last = first;
  for (; last + 1 < n_; ++last) {
    const double size = std::abs(diagonal(last)) + std::abs(diagonal(last + 1));
    if (std::abs(next(last)) + size == size) break;
  }
  return last;
}

// Runs QL with Wilkinson's shift until diagonal(first) is an eigenvalue.
void Decomposition::find_eigenvalue(Index first) {
  std::vector<Rotation> rotations;
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    const Index last = end_of_block(first);
    if (last == first) return;
    double g = (diagonal(first + 1) - diagonal(first)) / (2 * next(first));
    g = diagonal(last) - diagonal(first) + next(first) / (g + std::copysign(std::hypot(g, 1.0), g));
    double sine = 1, cosine = 1, shift = 0;
    rotations.clear();
    Index i = last - 1;
    for (; i >= first; --i) {
      const double f = sine * next(i), b = cosine * next(i);
      const double r = std::hypot(f, g);
      next(i + 1) = r;
      if (r == 0) {  // underflow: the block splits here
        diagonal(i + 1) -= shift;
        next(last) = 0;
        break;
      }
      sine = f / r;
      cosine = g / r;
      g = diagonal(i + 1) - shift;
      const double t = (diagonal(i) - g) * sine + 2 * cosine * b;
      shift = sine * t;
      diagonal(i + 1) = g + shift;
      g = cosine * t - b;
      rotations.push_back({i, cosine, sine});
    }
    rotate(rotations);
    if (i >= first) continue;
    diagonal(first) -= shift;
    next(first) = g;
    next(last) = 0;
  }
  fail_argument("symmetric_eigen", "The QL iteration does not converge.");
}

void Decomposition::iterate() {
  next(n_ - 1) = 0;
  for (Index first = 0; first < n_; ++first) find_eigenvalue(first);
}

SymmetricEigen Decomposition::sorted() const {
  std::vector<Index> order(diagonal_.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](Index i) { return diagonal_[static_cast<std::size_t>(i)]; });
  SymmetricEigen result;
  result.vectors.reserve(q_.size());
  for (const Index i : order) {
    result.values.push_back(diagonal_[static_cast<std::size_t>(i)]);
    result.vectors.insert(result.vectors.end(), q_.begin() + i * n_, q_.begin() + (i + 1) * n_);
  }
  return result;
}

}  // namespace

SymmetricEigen decompose_symmetric(std::span<const double> matrix, Index n, Executor& executor) {
  HONE_TRACE_ZONE("symmetric eigen", {"n", n});
  HONE_CHECK(n > 0 && static_cast<Index>(matrix.size()) == n * n, "symmetric_eigen",
             concat("a matrix of ", n, " x ", n), matrix.size());
  for (Index row = 0; row < n; ++row) {
    for (Index col = 0; col <= row; ++col) {
      const double value = matrix[static_cast<std::size_t>(row * n + col)];
      HONE_CHECK(std::isfinite(value), "symmetric_eigen", "finite elements", value);
    }
  }
  Decomposition work(matrix, n, executor);
  work.reduce();
  work.iterate();
  return work.sorted();
}

}  // namespace hone::kernels
#endif
