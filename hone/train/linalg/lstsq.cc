// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/lstsq.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <string_view>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/train/exact_scope.h"
#include "hone/train/linalg/matrix_input.h"
#include "hone/train/linalg/sketch_tensor.h"

namespace hone::linalg {
namespace {

using at::Tensor;

constexpr std::string_view kLstsq = "lstsq_sketched";

// The leading pivoted columns of A, times R^-1.
class Preconditioned {
 public:
  Preconditioned(const Tensor& a, const detail::PivotedSketch& sketch)
      : a_(a),
        pivots_(sketch.qr.pivots.narrow(0, 0, sketch.rank)),
        r_(sketch.r.narrow(1, 0, sketch.rank)) {}

  Index rank() const { return pivots_.numel(); }
  // [rank, c] -> [n, c]
  Tensor solution(const Tensor& y) const {
    const Tensor x = at::zeros({a_.size(1), y.size(1)}, y.options());
    return x.index_copy(0, pivots_, at::linalg_solve_triangular(r_, y, /*upper=*/true));
  }
  Tensor apply(const Tensor& y) const { return at::mm(a_, solution(y)); }
  Tensor apply_transposed(const Tensor& u) const {
    return at::linalg_solve_triangular(r_.t(), at::mm(a_.t(), u).index_select(0, pivots_),
                                       /*upper=*/false);
  }

 private:
  const Tensor& a_;
  Tensor pivots_, r_;
};

// Divides the columns of x by their norms, which are returned [1, c]; columns of 0 stay.
Tensor normalize_columns(Tensor& x) {
  Tensor norms = at::linalg_vector_norm(x, 2, 0, /*keepdim=*/true);
  x = x / norms.masked_fill(norms.eq(0), 1);
  return norms;
}

Tensor quotient(const Tensor& a, const Tensor& b) { return a / b.masked_fill(b.eq(0), 1); }

// y with minimal |P y - b| for each column of b, from `y` on. The names are those of the paper.
struct Lsqr {
  const Preconditioned& p;
  Tensor y;
  Index iterations = 0;
  bool has_converged = false;

  void run(const Tensor& b, Index max_iterations) {
    const double tolerance = unit_roundoff(b.scalar_type());
    const Tensor size_of_b = at::linalg_vector_norm(b, 2, 0, /*keepdim=*/true);
    Tensor u = b - p.apply(y);
    Tensor phi_bar = normalize_columns(u);
    Tensor v = p.apply_transposed(u);
    Tensor alpha = normalize_columns(v), rho_bar = alpha, w = v;
    // Whether |P^T r|, relative to |r|, or |r|, relative to |b|, is small for every column.
    const auto is_small = [&](const Tensor& slope) {
      return slope.le(tolerance).logical_or(phi_bar.le(tolerance * size_of_b)).all().item<bool>();
    };
    has_converged = is_small(alpha);
    while (!has_converged && iterations < max_iterations) {
      ++iterations;
      u = p.apply(v) - alpha * u;
      const Tensor beta = normalize_columns(u);
      v = p.apply_transposed(u) - beta * v;
      alpha = normalize_columns(v);
      const Tensor rho = at::hypot(rho_bar, beta);
      const Tensor c = quotient(rho_bar, rho), s = quotient(beta, rho);
      const Tensor theta = s * alpha, phi = c * phi_bar;
      rho_bar = -c * alpha;
      phi_bar = s * phi_bar;
      y = y + quotient(phi, rho) * w;
      w = v - quotient(theta, rho) * w;
      has_converged = is_small(alpha * c.abs());
    }
  }
};

// The solution of the sketched problem.
Tensor first_guess(const detail::PivotedSketch& sketch, const Tensor& b) {
  Tensor sketched = b;
  if (!sketch.is_exact) {
    sketched = at::empty({sketch.op.rows, b.size(1)}, b.options());
    detail::sketch_rows(sketch.op, /*transposed=*/false, b, sketched);
  }
  return at::mm(sketch.qr.q().narrow(1, 0, sketch.rank).t(), sketched);
}

}  // namespace

LstsqResult lstsq_sketched(const Tensor& a, const Tensor& b, const LstsqOptions& options) {
  check_cpu_matrix(kLstsq, "matrix", a);
  HONE_REQUIRE(b.defined(), kLstsq, "The right-hand side is an undefined tensor.");
  const Tensor rhs = b.dim() == 1 ? b.detach().unsqueeze(1) : b.detach();
  check_cpu_matrix(kLstsq, "right-hand side", rhs);
  HONE_CHECK(rhs.size(0) == a.size(0), kLstsq, concat("a right-hand side of ", a.size(0), " rows"),
             rhs.size(0));
  HONE_CHECK(rhs.scalar_type() == a.scalar_type(), kLstsq,
             concat("a right-hand side of the type ", at::toString(a.scalar_type())),
             at::toString(rhs.scalar_type()));
  detail::check_sketch_options(kLstsq, options.sketch);
  HONE_CHECK(options.max_iterations >= 1, kLstsq, "at least 1 iteration", options.max_iterations);
  HONE_TRACE_ZONE("lstsq_sketched", {"rows", a.size(0)}, {"cols", a.size(1)});
  const c10::NoGradGuard no_grad;
  const ExactScope exact;
  const ScaledMatrix left = scaled(kLstsq, "matrix", a.detach());
  ScaledMatrix right = scaled(kLstsq, "right-hand side", rhs);
  const detail::PivotedSketch sketch = detail::pivot_sketch(left.matrix, options.sketch);
  const Preconditioned preconditioned(left.matrix, sketch);
  LstsqResult result{.rank = sketch.rank, .has_converged = true};
  Tensor x = at::zeros({a.size(1), rhs.size(1)}, a.options());
  if (sketch.rank > 0 && rhs.size(1) > 0) {
    Lsqr lsqr{preconditioned, first_guess(sketch, right.matrix)};
    lsqr.run(right.matrix, options.max_iterations);
    x = preconditioned.solution(lsqr.y);
    result.iterations = lsqr.iterations;
    result.has_converged = lsqr.has_converged;
    right.exponent -= left.exponent;
    right.unscale(kLstsq, x);
  }
  result.x = b.dim() == 1 ? x.squeeze(1) : x;
  return result;
}

}  // namespace hone::linalg
