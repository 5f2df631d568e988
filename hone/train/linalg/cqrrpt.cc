// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/cqrrpt.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/trace.h"
#include "hone/train/exact_scope.h"
#include "hone/train/interop.h"
#include "hone/train/linalg/matrix_input.h"
#include "hone/train/linalg/sketch_tensor.h"

namespace hone::linalg {
namespace {

using at::Tensor;

constexpr std::string_view kCqrrpt = "cqrrpt";
// Columns of a block of a triangular solve, and rows that the solve takes at once, so that they
// stay in the last cache; columns of a block of a Gram matrix.
constexpr Index kSolveBlock = 256, kSolveRows = 1024, kGramBlock = 512;
constexpr double kWellConditioned = 10;

double rank_tolerance(at::ScalarType type) { return 2 * std::pow(unit_roundoff(type), 0.95); }

template <class T>
void gather_rows(const Tensor& a, const Tensor& pivots, Tensor& out, Index begin, Index end) {
  const T* from = a.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  const std::int64_t* pivot = pivots.const_data_ptr<std::int64_t>();
  const Index row_stride = a.stride(0), col_stride = a.stride(1), count = out.size(1);
  for (Index i = begin; i < end; ++i) {
    for (Index j = 0; j < count; ++j) {
      to[i * count + j] = from[i * row_stride + pivot[j] * col_stride];
    }
  }
}

// The first `count` of the pivoted columns, row-major. (index_select takes 6 times as long.)
Tensor leading_columns(const Tensor& a, const Tensor& pivots, Index count) {
  HONE_TRACE_ZONE("gather_columns", {"rows", a.size(0)}, {"cols", count});
  Tensor out = at::empty({a.size(0), count}, a.options());
  libtorch_executor().parallel_for(a.size(0), rows_per_chunk(count),
                                   [&](Index begin, Index end, int) {
                                     if (a.scalar_type() == at::kFloat) {
                                       gather_rows<float>(a, pivots, out, begin, end);
                                     } else {
                                       gather_rows<double>(a, pivots, out, begin, end);
                                     }
                                   });
  return out;
}

// x [m, k] <- x R^-1 of an upper triangular R, with all but the diagonal blocks by products. Rows
// of R may differ in scale by any factor, as those of pivoted QR do: the inverse of a block has the
// inverse factors, and errors do not grow by them.
void solve_right(Tensor& x, const Tensor& r) {
  HONE_TRACE_ZONE("solve_right", {"rows", x.size(0)}, {"cols", x.size(1)});
  std::vector<Tensor> inverses;
  for (Index first = 0; first < x.size(1); first += kSolveBlock) {
    const Index width = std::min(kSolveBlock, x.size(1) - first);
    inverses.push_back(
        at::linalg_solve_triangular(r.narrow(0, first, width).narrow(1, first, width),
                                    at::eye(width, r.options()), /*upper=*/true));
  }
  for (Index row = 0; row < x.size(0); row += kSolveRows) {
    const Tensor rows = x.narrow(0, row, std::min(kSolveRows, x.size(0) - row));
    for (Index first = 0; first < x.size(1); first += kSolveBlock) {
      const Tensor& inverse = inverses[static_cast<std::size_t>(first / kSolveBlock)];
      Tensor block = rows.narrow(1, first, inverse.size(0));
      if (first > 0) {
        const Tensor above = r.narrow(0, 0, first).narrow(1, first, inverse.size(0));
        block.addmm_(rows.narrow(1, 0, first), above, 1, -1);
      }
      block.copy_(at::mm(block, inverse));
    }
  }
}

// x^T x, of which only the lower triangle is right.
Tensor lower_gram(const Tensor& x) {
  HONE_TRACE_ZONE("gram", {"rows", x.size(0)}, {"cols", x.size(1)});
  const Index size = x.size(1);
  Tensor gram = at::zeros({size, size}, x.options());
  for (Index first = 0; first < size; first += kGramBlock) {
    const Index width = std::min(kGramBlock, size - first);
    gram.narrow(0, first, size - first)
        .narrow(1, first, width)
        .copy_(at::mm(x.narrow(1, first, size - first).t(), x.narrow(1, first, width)));
  }
  return gram;
}

// The Cholesky factor C of the leading block of a Gram matrix up to where its diagonal shows that
// further columns depend on those before.
struct CholeskyFactor {
  Tensor lower;      // [k, k]
  double ratio = 1;  // of the largest to the smallest entry of its diagonal
};

CholeskyFactor leading_cholesky(const Tensor& gram) {
  const double limit = 0.1 / std::sqrt(unit_roundoff(gram.scalar_type()));
  Index size = gram.size(0);
  for (;;) {
    const Tensor block = gram.narrow(0, 0, size).narrow(1, 0, size);
    const auto [lower, info] = at::linalg_cholesky_ex(block);
    if (const Index failed = info.item<int>(); failed > 0) {
      size = failed - 1;  // the order of the largest leading block that is positive definite
      continue;
    }
    const Tensor diagonal = lower.diagonal().to(at::kDouble).contiguous();
    const double* d = diagonal.const_data_ptr<double>();
    CholeskyFactor factor;
    double least = size > 0 ? d[0] : 1, most = least;
    Index kept = 0;
    for (; kept < size; ++kept) {
      least = std::min(least, d[kept]);
      most = std::max(most, d[kept]);
      if (!(most < limit * least)) break;
      factor.ratio = most / least;
    }
    factor.lower = lower.narrow(0, 0, kept).narrow(1, 0, kept);
    return factor;
  }
}

// Makes the columns of q, as far as they are independent, orthonormal, and multiplies r [k, n] from
// the left by what q was divided by. Returns the ratio of CholeskyFactor.
double orthonormalize(Tensor& q, Tensor& r) {
  const CholeskyFactor factor = leading_cholesky(lower_gram(q));
  const Index rank = factor.lower.size(0);
  if (rank < q.size(1)) q = q.narrow(1, 0, rank).contiguous();
  const Tensor upper = factor.lower.t().contiguous();
  solve_right(q, upper);
  r = at::mm(upper, r.narrow(0, 0, rank));
  return factor.ratio;
}

PivotedQr factor(const Tensor& a, const CqrrptOptions& options) {
  const detail::PivotedSketch sketch = detail::pivot_sketch(a, options);
  PivotedQr result{{}, sketch.r, sketch.qr.pivots};
  if (sketch.is_exact) {
    result.q = sketch.qr.q().narrow(1, 0, sketch.rank).contiguous();
    return result;
  }
  result.q = leading_columns(a, sketch.qr.pivots, sketch.rank);
  if (sketch.rank == 0) return result;
  solve_right(result.q, sketch.r.narrow(1, 0, sketch.rank));
  const double ratio = orthonormalize(result.q, result.r);
  if (a.scalar_type() == at::kFloat || ratio > kWellConditioned) {
    orthonormalize(result.q, result.r);
  }
  return result;
}

}  // namespace

namespace detail {

PivotedSketch pivot_sketch(const Tensor& a, const CqrrptOptions& options) {
  const Index m = a.size(0), n = a.size(1);
  const double wanted = std::ceil(options.gamma * static_cast<double>(n));
  PivotedSketch sketch;
  sketch.is_exact = n == 0 || wanted >= static_cast<double>(m);
  Tensor columns;
  if (sketch.is_exact) {
    columns = a.t().clone(at::MemoryFormat::Contiguous);
  } else {
    const auto rows = static_cast<Index>(wanted);
    sketch.op = {.kind = kernels::SketchKind::SparseSign,
                 .rows = rows,
                 .cols = m,
                 .seed = options.seed,
                 .nnz = std::min(options.nonzeros, rows)};
    columns = at::empty({n, rows}, a.options());
    Tensor sketched = columns.t();
    sketch_rows(sketch.op, /*transposed=*/false, a, sketched);
  }
  sketch.qr = factor_pivoted(columns);
  sketch.r = sketch.qr.r();
  sketch.rank = leading_rank(sketch.r, rank_tolerance(a.scalar_type()));
  sketch.r = sketch.r.narrow(0, 0, sketch.rank);
  return sketch;
}

void check_sketch_options(std::string_view op, const CqrrptOptions& options) {
  HONE_CHECK(std::isfinite(options.gamma) && options.gamma >= 1, op, "a finite gamma of at least 1",
             options.gamma);
  HONE_CHECK(options.nonzeros >= 1, op, "at least 1 nonzero", options.nonzeros);
}

}  // namespace detail

PivotedQr cqrrpt(const Tensor& a, const CqrrptOptions& options) {
  check_cpu_matrix(kCqrrpt, "matrix", a);
  detail::check_sketch_options(kCqrrpt, options);
  HONE_TRACE_ZONE("cqrrpt", {"rows", a.size(0)}, {"cols", a.size(1)});
  const c10::NoGradGuard no_grad;
  const ExactScope exact;
  const ScaledMatrix input = scaled(kCqrrpt, "matrix", a.detach());
  PivotedQr result = factor(input.matrix, options);
  result.r = result.r.contiguous();
  detail::fix_signs(result.q, result.r);
  input.unscale(result.r);
  return result;
}

}  // namespace hone::linalg
