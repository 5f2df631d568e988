// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/linalg/triangular.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/linalg/triangular.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/linalg/dot_tile-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(subtract_product_part);

namespace {

constexpr Index kBlock = 64;     // columns of a factor that are computed together
constexpr Index kRowGrain = 32;  // rows of a task

void subtract_on_this_thread(const SubtractProductArgs& args) {
  HWY_DYNAMIC_DISPATCH(subtract_product_part)(args);
}

SubtractProductArgs rows_of(SubtractProductArgs args, Index begin, Index end) {
  args.a += begin * args.a_stride;
  args.c += begin * args.c_stride;
  args.rows = end - begin;
  return args;
}

// Factors the diagonal block [size, size] at `block`. The columns before it are subtracted already.
bool factor_block(double* block, Index stride, Index size) {
  for (Index col = 0; col < size; ++col) {
    const double* pivot_row = block + col * stride;
    for (Index row = col; row < size; ++row) {
      double sum = block[row * stride + col];
      for (Index k = 0; k < col; ++k) sum -= block[row * stride + k] * pivot_row[k];
      if (row == col) {
        if (!(sum > 0) || !std::isfinite(sum)) return false;
        block[row * stride + col] = std::sqrt(sum);
      } else {
        block[row * stride + col] = sum / pivot_row[col];
      }
    }
  }
  return true;
}

// Replaces b [size] by the solution x of x · Lᵀ = b for a block L.
void solve_block(const double* l, Index stride, Index size, double* b) {
  for (Index col = 0; col < size; ++col) {
    double sum = b[col];
    for (Index k = 0; k < col; ++k) sum -= b[k] * l[col * stride + k];
    b[col] = sum / l[col * stride + col];
  }
}

// Replaces columns [begin, begin + size) of `count` rows, each [n], by those of the solution x of
// x · Lᵀ = b. The columns before them are solved already.
void solve_columns(const double* l, Index n, Index begin, Index size, double* rows, Index count) {
  const double* block_rows = l + begin * n;
  subtract_on_this_thread({.a = rows,
                           .a_stride = n,
                           .b = block_rows,
                           .b_stride = n,
                           .c = rows + begin,
                           .c_stride = n,
                           .rows = count,
                           .cols = size,
                           .depth = begin});
  for (Index row = 0; row < count; ++row)
    solve_block(block_rows + begin, n, size, rows + row * n + begin);
}

void check_solve(std::span<const double> l, Index n, std::span<const double> b) {
  HONE_CHECK(n > 0 && static_cast<Index>(l.size()) == n * n, "solve",
             concat("a triangular matrix of ", n, " x ", n), l.size());
  HONE_CHECK(static_cast<Index>(b.size()) % n == 0, "solve", concat("rows of ", n), b.size());
}

// The matrix with rows and columns in the opposite order, transposed: lower triangles stay lower.
std::vector<double> flip(std::span<const double> l, Index n) {
  std::vector<double> flipped(l.size());
  for (Index row = 0; row < n; ++row) {
    for (Index col = 0; col <= row; ++col)
      flipped[static_cast<std::size_t>((n - 1 - col) * n + n - 1 - row)] =
          l[static_cast<std::size_t>(row * n + col)];
  }
  return flipped;
}

void reverse_rows(std::span<double> b, Index n) {
  for (auto row = b.begin(); row != b.end(); row += n) std::reverse(row, row + n);
}

}  // namespace

void subtract_product(const SubtractProductArgs& args, Executor& executor) {
  executor.parallel_for(args.rows, kRowGrain, [&](Index begin, Index end, int) {
    subtract_on_this_thread(rows_of(args, begin, end));
  });
}

bool factor_cholesky(std::span<double> matrix, Index n, Executor& executor) {
  HONE_TRACE_ZONE("cholesky", {"n", n});
  HONE_CHECK(n > 0 && static_cast<Index>(matrix.size()) == n * n, "cholesky",
             concat("a matrix of ", n, " x ", n), matrix.size());
  double* data = matrix.data();
  for (Index begin = 0; begin < n; begin += kBlock) {
    const Index size = std::min(kBlock, n - begin), end = begin + size;
    const double* block_rows = data + begin * n;
    double* block = data + begin * n + begin;
    subtract_on_this_thread({.a = block_rows,
                             .a_stride = n,
                             .b = block_rows,
                             .b_stride = n,
                             .c = block,
                             .c_stride = n,
                             .rows = size,
                             .cols = size,
                             .depth = begin});
    if (!factor_block(block, n, size)) return false;
    executor.parallel_for(n - end, kRowGrain, [&](Index first, Index last, int) {
      solve_columns(data, n, begin, size, data + (end + first) * n, last - first);
    });
  }
  return true;
}

void solve_right_transposed(std::span<const double> l, Index n, std::span<double> b,
                            Executor& executor) {
  HONE_TRACE_ZONE("triangular solve", {"n", n}, {"rows", std::ssize(b) / n});
  check_solve(l, n, b);
  executor.parallel_for(std::ssize(b) / n, kRowGrain, [&](Index first, Index last, int) {
    double* rows = b.data() + first * n;
    for (Index begin = 0; begin < n; begin += kBlock) {
      solve_columns(l.data(), n, begin, std::min(kBlock, n - begin), rows, last - first);
    }
  });
}

void solve_right(std::span<const double> l, Index n, std::span<double> b, Executor& executor) {
  check_solve(l, n, b);
  const std::vector<double> flipped = flip(l, n);
  reverse_rows(b, n);
  solve_right_transposed(flipped, n, b, executor);
  reverse_rows(b, n);
}

void solve_cholesky(std::span<const double> l, Index n, std::span<double> b, Executor& executor) {
  solve_right_transposed(l, n, b, executor);
  solve_right(l, n, b, executor);
}

}  // namespace hone::kernels
#endif
