// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/linalg_work.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/train/linalg/matrix_input.h"
#include "hone/train/linalg/sketch_tensor.h"

namespace hone::bench {
namespace {

using at::Tensor;

constexpr std::uint64_t kMatrixSeed = 7;
constexpr double kBehindStep = 0.01;

Tensor exact(const Tensor& x) { return x.to(at::kDouble); }

Tensor orthonormal(Index m, Index n, std::uint64_t seed) {
  return std::get<0>(at::linalg_qr(gaussian_matrix(m, n, seed, at::kDouble)));
}

}  // namespace

Spectrum parse_spectrum(std::string_view text) {
  if (text == "gaussian") return Spectrum::Gaussian;
  if (text == "power") return Spectrum::Power;
  if (text == "step") return Spectrum::Step;
  fail_argument("bench linalg", "gaussian, power or step", text);
}

Tensor gaussian_matrix(Index m, Index n, std::uint64_t seed, at::ScalarType type) {
  const kernels::SketchOp op{
      .kind = kernels::SketchKind::Gaussian, .rows = m, .cols = n, .seed = seed, .scaled = false};
  return linalg::dense(op, type);
}

SpectralMatrix make_matrix(Spectrum spectrum, Index m, Index n, Index rank, at::ScalarType type) {
  if (spectrum == Spectrum::Gaussian) return {gaussian_matrix(m, n, kMatrixSeed, type), {}};
  const Index count = std::min(m, n);
  const Tensor j = at::arange(1, count + 1, at::kDouble);
  const Tensor sizes = spectrum == Spectrum::Power
                           ? j.reciprocal()
                           : at::where(j.le(rank), at::ones_like(j), at::full_like(j, kBehindStep));
  const Tensor left = orthonormal(m, count, kMatrixSeed).mul_(sizes);
  return {at::mm(left, orthonormal(n, count, kMatrixSeed + 1).t()).to(type), sizes};
}

double SpectralMatrix::best_error(Index rank) const {
  const Index count = std::min(a.size(0), a.size(1));
  if (rank >= count) return 0;
  if (spectrum.defined()) return frobenius(spectrum.narrow(0, rank, count - rank));
  const Tensor wide = exact(a.size(0) <= a.size(1) ? a : a.t());
  const Tensor squares = at::linalg_eigvalsh(at::mm(wide, wide.t()));  // ascending
  return std::sqrt(squares.narrow(0, 0, count - rank).clamp_min(0).sum().item<double>());
}

double frobenius(const Tensor& x) { return exact(x).norm().item<double>(); }

double relative_difference(const Tensor& got, const Tensor& want) {
  const double difference = frobenius(exact(got) - exact(want));
  return difference == 0 ? 0 : difference / frobenius(want);
}

double residual(const Tensor& a, const linalg::Svd& svd) {
  return frobenius(exact(a) - at::mm(exact(svd.u) * exact(svd.s), exact(svd.v).t()));
}

double residual(const Tensor& a, const linalg::PivotedQr& qr) {
  return frobenius(exact(a).index_select(1, qr.pivots) - at::mm(exact(qr.q), exact(qr.r)));
}

double orthogonality(const Tensor& q) {
  const Tensor basis = exact(q);
  return frobenius(at::mm(basis.t(), basis) - at::eye(q.size(1), at::kDouble));
}

Index detected_rank(const Tensor& r) {
  const Tensor sizes = r.diagonal().abs();
  if (sizes.numel() == 0) return 0;
  const double least = 2 * std::pow(linalg::unit_roundoff(r.scalar_type()), 0.95);
  return sizes.gt(least * sizes[0]).sum().item<std::int64_t>();
}

double distortion(const Tensor& sketched) {
  return (at::linalg_svdvals(exact(sketched)) - 1).abs().max().item<double>();
}

}  // namespace hone::bench
