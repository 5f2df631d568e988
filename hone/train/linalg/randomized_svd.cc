// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/randomized_svd.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/train/exact_scope.h"
#include "hone/train/linalg/matrix_input.h"
#include "hone/train/linalg/orthonormal.h"
#include "hone/train/linalg/sketch_tensor.h"

namespace hone::linalg {
namespace {

using at::Tensor;

constexpr std::string_view kRandomizedSvd = "randomized_svd";
constexpr Index kSketchNonzeros = 8;
// |A|^2 - |A P^T|^2 has rounding errors of about the roundoff times |A|^2; the error is its root.
constexpr double kErrorFloorF32 = 1e-2, kErrorFloorF64 = 1e-6;
constexpr Index kRowsAtOnce = 256;
// Eigenvectors of a Gram matrix in f64 have errors of its roundoff over the square of this.
constexpr double kLeastByGram = 1e-4;

double norm_of(const Tensor& x) {
  return at::linalg_vector_norm(x, 2, std::nullopt, false, at::kDouble).item<double>();
}

// A projected to the right: P [c, n] with orthonormal rows, Y = P A^T [c, m].
class Projection {
 public:
  Projection(const Tensor& a, const RandomizedSvdOptions& options)
      : a_(a),
        options_(options),
        p_(at::empty({0, a.size(1)}, a.options())),
        y_(at::empty({0, a.size(0)}, a.options())) {}

  Index size() const { return p_.size(0); }
  const Tensor& p() const { return p_; }
  const Tensor& y() const { return y_; }

  // Adds power + 1 blocks of `width` rows.
  void grow(Index width) {
    Tensor y = sketch(width);
    for (Index step = 0; step <= options_.power; ++step) {
      const Tensor z = product(detail::well_conditioned_rows(y), a_);
      const Tensor p = detail::orthonormal_rows_beside(p_, z);
      y = product_transposed(p, a_);
      p_ = at::cat({p_, p});
      y_ = at::cat({y_, y});
    }
  }

  // |A - A P^T P| / |A|; exact where it decides whether `tolerance` is met.
  double relative_error(double norm, double tolerance) const {
    if (norm == 0) return 0;
    const double share = norm_of(y_) / norm;
    const double rough = std::sqrt(std::abs((1 - share) * (1 + share)));
    const double floor = a_.scalar_type() == at::kFloat ? kErrorFloorF32 : kErrorFloorF64;
    return rough > std::max(2 * tolerance, floor) ? rough : norm_of_rest() / norm;
  }

 private:
  // [width, m]: S A^T of a new S, without what lies in the space already.
  Tensor sketch(Index width) {
    kernels::SketchOp op{.kind = kernels::SketchKind::SparseSign,
                         .rows = width,
                         .cols = a_.size(1),
                         .seed = options_.seed,
                         .stream = stream_++,
                         .nnz = std::min(kSketchNonzeros, width)};
    if (!a_.is_cpu()) {
      const Tensor s = dense(op, a_.options());
      return product_transposed(s - product(product_transposed(s, p_), p_), a_);
    }
    Tensor y = at::empty({width, a_.size(0)}, a_.options());
    detail::sketch_rows(op, /*transposed=*/false, a_.t(), y);
    if (size() == 0) return y;
    Tensor overlap = at::empty({width, size()}, a_.options());
    detail::sketch_rows(op, /*transposed=*/false, p_.t(), overlap);
    return y - product(overlap, y_);
  }

  double norm_of_rest() const {
    double sum = 0;
    for (Index row = 0; row < a_.size(0); row += kRowsAtOnce) {
      const Index rows = std::min(kRowsAtOnce, a_.size(0) - row);
      const Tensor part = y_.narrow(1, row, rows).t();
      const double norm = norm_of(a_.narrow(0, row, rows) - product(part, p_));
      sum += norm * norm;
    }
    return std::sqrt(sum);
  }

  const Tensor& a_;
  const RandomizedSvdOptions& options_;
  std::uint32_t stream_ = 0;
  Tensor p_, y_;
};

Svd narrowed(const Svd& svd, Index rank) {
  return {svd.u.narrow(1, 0, rank), svd.s.narrow(0, 0, rank), svd.v.narrow(1, 0, rank)};
}

// The smallest rank whose error stays below the tolerance, given |A| and the error of all triplets.
Index rank_within(const Svd& svd, double norm, double error_of_all, double tolerance) {
  const Tensor sizes = svd.s.to(at::kDouble).cpu();
  const double* s = sizes.const_data_ptr<double>();
  const double most = tolerance * norm * (tolerance * norm);
  double error = error_of_all * norm * (error_of_all * norm);
  Index rank = sizes.numel();
  while (rank > 0 && error + s[rank - 1] * s[rank - 1] <= most) {
    --rank;
    error += s[rank] * s[rank];
  }
  return rank;
}

Svd exact_svd(const Tensor& a) {
  auto [u, s, v] = at::linalg_svd(a, /*full_matrices=*/false);
  return {u, s, v.t()};
}

Index limited(Index rank, const RandomizedSvdOptions& options) {
  return options.rank > 0 ? std::min(rank, options.rank) : rank;
}

// svd_of for f32 by the eigenvectors W of Y Y^T = W s^2 W^T in f64: u = Y^T W / s and v = P^T W.
// Empty if singular values are so small beside the largest one that u would not be orthonormal.
std::optional<Svd> svd_by_gram(const Projection& projection, Index most) {
  const Tensor y = projection.y().to(at::kDouble);
  const auto [squares, vectors] = at::linalg_eigh(at::mm(y, y.t()));  // ascending
  const Tensor w = vectors.narrow(1, squares.size(0) - most, most).flip(1);
  const Tensor s = squares.narrow(0, squares.size(0) - most, most).flip(0).clamp_min(0).sqrt();
  if (!(s[most - 1].item<double>() > kLeastByGram * s[0].item<double>())) return std::nullopt;
  const at::ScalarType type = projection.y().scalar_type();
  return Svd{at::mm(y.t(), w / s).to(type), s.to(type),
             product(projection.p().t(), w.to(type).contiguous())};
}

// The best `most` triplets of A P^T P = Y^T P.
Svd svd_of(const Projection& projection, Index most) {
  if (projection.y().scalar_type() == at::kFloat) {
    if (const auto svd = svd_by_gram(projection, most)) return *svd;
  }
  const detail::RowBasis basis = detail::orthonormal_rows(projection.y());
  const Svd core = narrowed(exact_svd(basis.l), most);  // Y^T P = q^T l^T P, l^T = v s u^T
  return {product(basis.q.t(), core.v), core.s, product(projection.p().t(), core.u)};
}

Svd leading_triplets(const Tensor& a, const RandomizedSvdOptions& options) {
  const Index smaller = std::min(a.size(0), a.size(1));
  const bool has_rank = options.tolerance == 0;
  const Index width = has_rank ? options.rank + options.oversample : options.block;
  const double norm = has_rank ? 0 : norm_of(a);
  Projection projection(a, options);
  for (;;) {
    // Checked by division, because options may be as large as an Index.
    if (width >= (smaller - projection.size()) / (options.power + 1)) {
      const Svd svd = exact_svd(a);
      const Index rank = has_rank ? svd.s.numel() : rank_within(svd, norm, 0, options.tolerance);
      return narrowed(svd, limited(rank, options));
    }
    projection.grow(width);
    if (has_rank) return svd_of(projection, options.rank);
    const double error = projection.relative_error(norm, options.tolerance);
    const bool is_at_limit =
        options.rank > 0 && projection.size() >= options.rank + options.oversample;
    if (error > options.tolerance && !is_at_limit) continue;
    const Svd svd = svd_of(projection, projection.size());
    return narrowed(svd, limited(rank_within(svd, norm, error, options.tolerance), options));
  }
}

void fix_signs(Svd& svd) {
  if (svd.u.numel() == 0) return;
  const Tensor largest = svd.u.gather(0, svd.u.abs().argmax(0, /*keepdim=*/true)).squeeze(0);
  const Tensor signs = at::where(largest.lt(0), -1.0, 1.0).to(svd.u.scalar_type());
  svd.u = (svd.u * signs).contiguous();
  svd.v = (svd.v * signs).contiguous();
}

}  // namespace

Svd randomized_svd(const Tensor& a, const RandomizedSvdOptions& options) {
  check_matrix(kRandomizedSvd, "matrix", a);
  HONE_CHECK(!a.is_meta(), kRandomizedSvd, "a matrix with values", "one on the device meta");
  HONE_CHECK(options.tolerance >= 0 && options.tolerance < 1, kRandomizedSvd,
             "a tolerance in [0, 1)", options.tolerance);
  HONE_CHECK(options.rank >= (options.tolerance > 0 ? 0 : 1), kRandomizedSvd,
             "a rank of at least 1, or a tolerance", options.rank);
  constexpr Index kMost = kernels::kMaxSketchSize;
  HONE_CHECK(options.rank <= kMost, kRandomizedSvd, concat("a rank of at most ", kMost),
             options.rank);
  HONE_CHECK(options.oversample >= 0 && options.oversample <= kMost, kRandomizedSvd,
             concat("an oversampling in [0, ", kMost, "]"), options.oversample);
  HONE_CHECK(options.power >= 0 && options.power <= 100, kRandomizedSvd, "a power in [0, 100]",
             options.power);
  HONE_CHECK(options.block >= 1 && options.block <= kMost, kRandomizedSvd,
             concat("a block in [1, ", kMost, "]"), options.block);
  HONE_TRACE_ZONE("randomized_svd", {"rows", a.size(0)}, {"cols", a.size(1)},
                  {"rank", options.rank});
  const c10::NoGradGuard no_grad;
  const ExactScope exact;
  const ScaledMatrix input = scaled(kRandomizedSvd, "matrix", a.detach());
  Svd svd;
  if (input.matrix.stride(0) < input.matrix.stride(1)) {  // rows are adjacent in the transpose
    svd = leading_triplets(input.matrix.t(), options);
    std::swap(svd.u, svd.v);
  } else {
    svd = leading_triplets(input.matrix, options);
  }
  input.unscale(kRandomizedSvd, svd.s);
  fix_signs(svd);
  return svd;
}

}  // namespace hone::linalg
