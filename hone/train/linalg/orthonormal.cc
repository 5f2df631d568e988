// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/orthonormal.h"

#include <ATen/ATen.h>

#include <optional>

#include "hone/train/linalg/matrix_input.h"

namespace hone::linalg::detail {
namespace {

using at::Tensor;

// Ratios of the largest to the smallest entry of the diagonal of a Cholesky factor, which are
// somewhat below the condition number of y: up to where rows are orthonormal after one round; after
// which a further round makes them so; and that of such a round, if it has succeeded.
constexpr double kOneRound = 4, kTwoRoundsF32 = 1e5, kTwoRoundsF64 = 1e6, kOrthonormal = 2;

struct CholeskyRound {
  RowBasis basis;
  double ratio = 1;
};

std::optional<CholeskyRound> cholesky_round(const Tensor& y) {
  const Tensor exact = y.to(at::kDouble);
  const auto [l, info] = at::linalg_cholesky_ex(at::mm(exact, exact.t()));
  if (info.item<int>() != 0) return std::nullopt;
  const auto [least, most] = l.diagonal().aminmax();
  const double ratio = most.item<double>() / least.item<double>();
  const double limit = y.scalar_type() == at::kFloat ? kTwoRoundsF32 : kTwoRoundsF64;
  if (!(ratio <= limit)) return std::nullopt;  // also if it is NaN
  // A product with the inverse is faster than a solve, and as accurate for the factors of a round.
  const Tensor inverse =
      at::linalg_solve_triangular(l, at::eye(l.size(0), l.options()), /*upper=*/false);
  return CholeskyRound{{product(inverse.to(y.scalar_type()), y), l.to(y.scalar_type())}, ratio};
}

RowBasis by_reflectors(const Tensor& y) {
  const auto [q, r] = at::linalg_qr(y.t());
  return {q.t(), r.t()};
}

Tensor without(const Tensor& basis, const Tensor& y) {
  return y - product(product_transposed(y, basis), basis);
}

}  // namespace

RowBasis orthonormal_rows(const Tensor& y) {
  auto first = cholesky_round(y);
  if (!first) return by_reflectors(y);
  if (first->ratio <= kOneRound) return first->basis;
  const auto second = cholesky_round(first->basis.q);
  if (!second || second->ratio > kOrthonormal) return by_reflectors(y);
  return {second->basis.q, at::mm(first->basis.l, second->basis.l)};
}

Tensor well_conditioned_rows(const Tensor& y) {
  const auto round = cholesky_round(y);
  return round ? round->basis.q : by_reflectors(y).q;
}

Tensor orthonormal_rows_beside(const Tensor& basis, const Tensor& y) {
  if (basis.size(0) == 0) return orthonormal_rows(y).q;
  // Rounding errors of the first projection are as large as what it leaves of rows that the basis
  // spans already.
  const auto round = cholesky_round(without(basis, well_conditioned_rows(without(basis, y))));
  if (round && round->ratio <= kOrthonormal) return round->basis.q;
  return by_reflectors(at::cat({basis, y})).q.narrow(0, basis.size(0), y.size(0));
}

}  // namespace hone::linalg::detail
