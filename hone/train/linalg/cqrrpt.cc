// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/cqrrpt.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/train/exact_scope.h"
#include "hone/train/interop.h"
#include "hone/train/linalg/matrix_input.h"
#include "hone/train/linalg/sketch_tensor.h"

namespace hone::linalg {
namespace {

using at::Tensor;

constexpr std::string_view kCqrrpt = "cqrrpt";
// Columns of a block of a triangular solve and of a Gram matrix; rows that are done at a time.
constexpr Index kSolveBlock = 256, kGramBlock = 256, kRows = 1024;
constexpr Index kCacheLine = 64;
// The ratio of the largest to the smallest entry on the diagonal of a triangular factor, up to
// which the Gram matrix of what was factored is accurate.
constexpr double kWellConditioned = 10;

double rank_tolerance(at::ScalarType type) { return 2 * std::pow(unit_roundoff(type), 0.95); }

// Rows begin an odd number of cache lines apart. Those that are a power of two of bytes apart share
// few sets of the caches, and products of 1024 columns in f64 take up to 1.4 times as long.
Tensor empty_rows(Index rows, Index cols, const at::TensorOptions& options) {
  const Index line = kCacheLine / static_cast<Index>(options.dtype().itemsize());
  const Index lines = (cols + line - 1) / line | 1;
  return at::empty({rows, lines * line}, options).narrow(1, 0, cols);
}

template <class T>
void gather_rows(const Tensor& a, const std::int64_t* pivots, Tensor& out, Index begin, Index end) {
  const T* from = a.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  const Index row_stride = a.stride(0), col_stride = a.stride(1);
  const Index count = out.size(1), out_stride = out.stride(0);
  for (Index i = begin; i < end; ++i) {
    for (Index j = 0; j < count; ++j) {
      to[i * out_stride + j] = from[i * row_stride + pivots[j] * col_stride];
    }
  }
}

// The leading pivoted columns. (index_select takes 6 times as long.)
void gather_columns(const Tensor& a, const Tensor& pivots, Tensor& out) {
  const std::int64_t* pivot = pivots.const_data_ptr<std::int64_t>();
  libtorch_executor().parallel_for(a.size(0), rows_per_chunk(out.size(1)),
                                   [&](Index begin, Index end, int) {
                                     if (a.scalar_type() == at::kFloat) {
                                       gather_rows<float>(a, pivot, out, begin, end);
                                     } else {
                                       gather_rows<double>(a, pivot, out, begin, end);
                                     }
                                   });
}

// Rows <- rows R^-1 of an upper triangular R, with all but the diagonal blocks by products. Rows of
// R may differ in scale by any factor, as those of pivoted QR do: the inverse of a block has the
// inverse factors, and errors do not grow by them.
class RightSolver {
 public:
  explicit RightSolver(const Tensor& r)
      : r_(empty_rows(r.size(0), r.size(1), r.options()).copy_(r)) {
    for (Index first = 0; first < r.size(1); first += kSolveBlock) {
      const Index width = std::min(kSolveBlock, r.size(1) - first);
      inverses_.push_back(
          at::linalg_solve_triangular(r.narrow(0, first, width).narrow(1, first, width),
                                      at::eye(width, r.options()), /*upper=*/true));
    }
  }

  void solve(const Tensor& rows) const {
    Index first = 0;
    for (const Tensor& inverse : inverses_) {
      const Index width = inverse.size(0);
      Tensor block = rows.narrow(1, first, width);
      if (first > 0) {
        const Tensor above = r_.narrow(0, 0, first).narrow(1, first, width);
        block.addmm_(rows.narrow(1, 0, first), above, 1, -1);
      }
      block.copy_(at::mm(block, inverse));
      first += width;
    }
  }

 private:
  Tensor r_;
  std::vector<Tensor> inverses_;
};

// Adds rows^T rows to the upper triangle of `gram`; the rest is undefined.
void add_gram(const Tensor& rows, const Tensor& gram) {
  for (Index first = 0; first < gram.size(0); first += kGramBlock) {
    const Index width = std::min(kGramBlock, gram.size(0) - first), rest = gram.size(0) - first;
    gram.narrow(0, first, width)
        .narrow(1, first, rest)
        .addmm_(rows.narrow(1, first, width).t(), rows.narrow(1, first, rest));
  }
}

// q <- x R^-1, or x if r is undefined, where `load` copies rows [first, first + out.size(0)) of x
// into `out`, and of which `gram` becomes the Gram matrix if it is defined. All of that is done for
// some rows at a time, so that they stay in the last cache; x may be q.
template <class Load>
void solve_right(const Load& load, const Tensor& r, Tensor& q, const Tensor& gram) {
  HONE_TRACE_ZONE("solve_right", {"rows", q.size(0)}, {"cols", q.size(1)});
  std::optional<RightSolver> solver;
  if (r.defined()) solver.emplace(r);
  const Tensor buffer = empty_rows(std::min(kRows, q.size(0)), q.size(1), q.options());
  for (Index first = 0; first < q.size(0); first += kRows) {
    Tensor rows = buffer.narrow(0, 0, std::min(kRows, q.size(0) - first));
    load(first, rows);
    if (solver) solver->solve(rows);
    if (gram.defined()) add_gram(rows, gram);
    q.narrow(0, first, rows.size(0)).copy_(rows);
  }
}

// For solve_right.
auto rows_of(const Tensor& x) {
  return [x](Index first, Tensor& rows) { rows.copy_(x.narrow(0, first, rows.size(0))); };
}

// The Cholesky factor C of the leading block of a Gram matrix up to where its diagonal shows that
// further columns depend on those before.
struct CholeskyFactor {
  Tensor upper;      // [k, k]
  double ratio = 1;  // of the largest to the smallest entry of its diagonal
};

CholeskyFactor leading_cholesky(const Tensor& gram) {
  const double limit = 0.1 / std::sqrt(unit_roundoff(gram.scalar_type()));
  Index size = gram.size(0);
  for (;;) {
    const Tensor block = gram.narrow(0, 0, size).narrow(1, 0, size);
    const auto [upper, info] = at::linalg_cholesky_ex(block, /*upper=*/true);
    if (const Index failed = info.item<int>(); failed > 0) {
      size = failed - 1;  // the order of the largest leading block that is positive definite
      continue;
    }
    const Tensor diagonal = upper.diagonal().to(at::kDouble).contiguous();
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
    factor.upper = upper.narrow(0, 0, kept).narrow(1, 0, kept);
    return factor;
  }
}

// The leading columns of a matrix of this Gram matrix are q C, and the others have the parts q D:
// [C, D].
Tensor coefficients(const CholeskyFactor& factor, const Tensor& gram) {
  const Index rank = factor.upper.size(0), rest = gram.size(0) - rank;
  if (rest == 0) return factor.upper;
  if (rank == 0) return gram.narrow(0, 0, 0);
  const Tensor products = gram.narrow(0, 0, rank).narrow(1, rank, rest);
  return at::cat({factor.upper, at::linalg_solve_triangular(factor.upper.t(), products, false)}, 1);
}

// Makes the columns of q, as far as they are independent, orthonormal, and r [k, n] the
// coefficients of q r in them. `gram` is q's.
void orthonormalize(Tensor& q, Tensor gram, Tensor& r) {
  constexpr int kMostRounds = 2;
  for (int round = 1; gram.defined(); ++round) {
    const CholeskyFactor factor = leading_cholesky(gram);
    const Index rank = factor.upper.size(0);
    r = at::mm(coefficients(factor, gram), r);
    const bool is_enough = q.scalar_type() == at::kDouble && factor.ratio <= kWellConditioned;
    const Tensor x = q.narrow(1, 0, rank);
    if (rank < q.size(1)) q = at::empty({q.size(0), rank}, q.options());
    gram = is_enough || round == kMostRounds ? Tensor() : at::zeros({rank, rank}, q.options());
    solve_right(rows_of(x), factor.upper, q, gram);
  }
}

// Makes q and r those of the pivoted columns that `load` copies, where r is R of their sketch,
// without dividing the columns by it, which takes a third of all operations. False, with r as it
// was, where they or their sketch are not well conditioned.
template <class Load>
bool orthonormalize_directly(const Load& load, Tensor& q, Tensor& r) {
  const Tensor diagonal = r.diagonal();
  if (r.scalar_type() != at::kDouble || r.size(0) < r.size(1) ||
      (diagonal.max() > kWellConditioned * diagonal.min()).item<bool>()) {
    return false;
  }
  const Tensor gram = at::zeros({q.size(1), q.size(1)}, q.options());
  solve_right(load, Tensor(), q, gram);
  const CholeskyFactor factor = leading_cholesky(gram);
  if (factor.upper.size(0) < q.size(1) || factor.ratio > kWellConditioned) return false;
  solve_right(rows_of(q), factor.upper, q, Tensor());
  r = factor.upper.triu();
  return true;
}

PivotedQr factor(const Tensor& a, const CqrrptOptions& options) {
  const detail::PivotedSketch sketch = detail::pivot_sketch(a, options);
  const Index rank = sketch.rank;
  PivotedQr result{{}, sketch.r, sketch.qr.pivots};
  if (sketch.is_exact) {
    result.q = sketch.qr.q().narrow(1, 0, rank).contiguous();
    detail::fix_signs(result.q, result.r);
    return result;
  }
  Tensor no_q;  // the signs of its columns follow from those of R
  detail::fix_signs(no_q, result.r);
  result.q = at::empty({a.size(0), rank}, a.options());
  if (rank == 0) return result;
  const auto load = [&](Index first, Tensor& rows) {
    gather_columns(a.narrow(0, first, rows.size(0)), sketch.qr.pivots, rows);
  };
  if (orthonormalize_directly(load, result.q, result.r)) return result;
  const Tensor gram = at::zeros({rank, rank}, a.options());
  solve_right(load, result.r.narrow(1, 0, rank), result.q, gram);
  orthonormalize(result.q, gram, result.r);
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
  input.unscale(kCqrrpt, result.r);
  return result;
}

}  // namespace hone::linalg
