// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/fit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"
#include "hone/train/linalg/randomized_svd.h"

namespace hone::sketch {
namespace {

using torch::Tensor;

constexpr std::string_view kFit = "fit";
// The share of a Gram matrix's largest eigenvalue below which eigenvalues count as 0.
constexpr double kGramTolerance = 1e-12;
// A share of the inputs' mean variance; grows by 10 until the second moment has a Cholesky factor.
constexpr double kRidge = 1e-6;

// From this smaller side on, and up to this share of it as rank, the SVD is a randomized one.
constexpr Index kLeastRandomizedSide = 512, kRandomizedShare = 8, kPower = 2;

linalg::Svd truncated_svd(const Tensor& weight, Index rank) {
  const Index side = std::min(weight.size(0), weight.size(1));
  if (!is_fit_svd_exact(side, rank)) {
    return linalg::randomized_svd(weight, {.rank = rank, .power = kPower});
  }
  const auto [u, s, vh] = at::linalg_svd(weight, /*full_matrices=*/false);
  return {u.narrow(1, 0, rank), s.narrow(0, 0, rank), vh.narrow(0, 0, rank).t()};
}

void check_weight(const Tensor& weight) {
  HONE_CHECK(weight.dim() == 2 && weight.numel() > 0, kFit, "a weight [out, in]",
             c10::str(weight.sizes()));
  HONE_CHECK(weight.is_floating_point(), kFit, "a weight of floating point",
             at::toString(weight.scalar_type()));
  check_finite(kFit, "weight", weight);
}

// (m mᵀ)⁺ for m [rows, n], computed in f64.
Tensor inverse_gram(const Tensor& m) {
  const Tensor wide = m.to(at::kDouble);
  return at::linalg_pinv(at::mm(wide, wide.t()), kGramTolerance, /*hermitian=*/true)
      .to(m.scalar_type());
}

// The Cholesky factor of the inputs' second moment, in f64 on the weight's device.
Tensor moment_factor(const InputMoments& inputs, const Tensor& weight) {
  HONE_CHECK(inputs.second.defined() && inputs.second.size(0) == weight.size(1), kFit,
             concat("moments of ", weight.size(1), " inputs"),
             inputs.second.defined() ? concat(inputs.second.size(0)) : "none");
  const Tensor second = inputs.second.to(weight.device()) / static_cast<double>(inputs.rows);
  const double variance = second.diagonal().mean().item<double>();
  HONE_REQUIRE(std::isfinite(variance), kFit, "The inputs have NaN or infinity in them.");
  if (variance == 0) return at::eye(weight.size(1), second.options());
  for (double ridge = kRidge * variance;; ridge *= 10) {
    Tensor moved = second.clone();
    moved.diagonal().add_(ridge);
    const auto [factor, info] = at::linalg_cholesky_ex(moved);
    if (info.item<int>() == 0) return factor;
  }
}

// A weight and, with input moments, the factor L of their second moment: `whitened` is (Lᵀ W)ᵀ.
struct Target {
  Tensor whitened;
  Tensor factor;
  at::ScalarType type;

  Target(const Tensor& weight, const InputMoments* inputs) : type(weight.scalar_type()) {
    check_weight(weight);
    if (!inputs) {
      whitened = in_working_type(weight.detach());
      return;
    }
    factor = moment_factor(*inputs, weight);
    whitened = at::mm(weight.detach().to(at::kDouble), factor);
  }
  // rows [k, in] times L, and times its inverse.
  Tensor whiten(const Tensor& rows) const {
    const Tensor same = rows.to(whitened);
    return factor.defined() ? at::mm(same, factor) : same;
  }
  Tensor restore(const Tensor& rows) const {
    if (!factor.defined()) return rows;
    return at::linalg_solve_triangular(factor, rows, /*upper=*/false, /*left=*/false);
  }
};

FactorPair checked_signs(const Tensor& weight, const FixedSigns& signs) {
  check_weight(weight);
  const auto fits = [&](const Tensor& u, Index cols) {
    return u.dim() == 2 && u.size(0) == signs.u1.size(0) && u.size(1) == cols;
  };
  HONE_CHECK(fits(signs.u1, weight.size(0)) && fits(signs.u2, weight.size(1)), kFit,
             concat("signs [width, ", weight.size(0), "] and [width, ", weight.size(1), "]"),
             concat(c10::str(signs.u1.sizes()), " and ", c10::str(signs.u2.sizes())));
  HONE_CHECK(signs.terms >= 1, kFit, "terms >= 1", signs.terms);
  return {signs.u1.to(weight.device()), signs.u2.to(weight.device())};
}

// The smallest rank >= 1 that leaves a tail of at most max_error in relative terms.
Index rank_of_tail(const Tensor& singular_values, double max_error) {
  HONE_CHECK(max_error >= 0 && max_error < 1, kFit, "a relative error in [0, 1)", max_error);
  const Tensor squares = singular_values.to(at::kCPU, at::kDouble).square();
  const Tensor tails = squares.flip(0).cumsum(0).flip(0);  // tails[r]: of what rank r leaves out
  const double allowed = max_error * max_error * tails[0].item<double>();
  const Index rank = (tails > allowed).sum().item<Index>();
  return std::max<Index>(1, rank);
}

}  // namespace

void check_finite(std::string_view call, std::string_view what, const Tensor& tensor) {
  HONE_REQUIRE(!tensor.defined() || at::isfinite(tensor).all().item<bool>(), call,
               concat("The ", what, " has NaN or infinity in it."));
}

void InputMoments::add(const Tensor& x) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  HONE_REQUIRE(x.defined(), "InputMoments", "The inputs are an undefined tensor.");
  HONE_CHECK(x.dim() >= 1 && x.size(-1) > 0, "InputMoments", "x [..., in]", c10::str(x.sizes()));
  const Tensor flat = x.detach().reshape({-1, x.size(-1)}).to(at::kDouble);
  if (rows == 0) {
    second = at::zeros({x.size(-1), x.size(-1)}, flat.options());
    mean = at::zeros({x.size(-1)}, flat.options());
  }
  HONE_CHECK(mean.size(0) == x.size(-1), "InputMoments", concat(mean.size(0), " inputs"),
             x.size(-1));
  if (flat.size(0) == 0) return;  // no row: check() names it where the moments are used
  const Tensor own = flat.mean(0);
  // A mean in f64 of values that all are finite does not overflow; of f64 values, those that would
  // have no second moment either are refused with them.
  HONE_REQUIRE(at::isfinite(own).all().item<bool>(), "InputMoments",
               "The inputs have NaN or infinity in them.");
  second.addmm_(flat.t(), flat);
  const double share = static_cast<double>(flat.size(0)) / static_cast<double>(rows + flat.size(0));
  mean.lerp_(own, share);
  rows += flat.size(0);
}

FactorPair fit_random(const Tensor& weight, const FixedSigns& signs) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  const auto [u1, u2] = checked_signs(weight, signs);
  const Tensor w = in_working_type(weight.detach());
  return {at::mm(u1.to(w), w).to(weight.scalar_type()),
          at::mm(u2.to(w), w.t()).to(weight.scalar_type())};
}

// W' ≈ S u1 + u2'ᵀ T with S = W' u1⁺ and T = (u2'ᵀ)⁺ (W' - S u1), where W' = Lᵀ W and u2' = u2 L.
FactorPair fit_projection(const Tensor& weight, const FixedSigns& signs,
                          const InputMoments* inputs) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  const auto [fixed1, fixed2] = checked_signs(weight, signs);
  const Target target(weight, inputs);
  const Tensor u1 = fixed1.to(target.whitened), u2 = target.whiten(fixed2);
  const Tensor s = at::mm(inverse_gram(u1), at::mm(u1, target.whitened));  // transposed
  const Tensor rest = at::addmm(target.whitened, u1.t(), s, 1, -1);
  const Tensor t = at::mm(inverse_gram(u2), at::mm(u2, rest.t()));
  const double sum = 2.0 * static_cast<double>(signs.terms);
  return {target.restore(s).mul(sum).to(target.type), t.mul(sum).to(target.type)};
}

bool is_fit_svd_exact(Index side, Index rank) {
  return side < kLeastRandomizedSide || rank > side / kRandomizedShare;
}

FactorPair fit_svd(const Tensor& weight, Index rank, const InputMoments* inputs) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  const Target target(weight, inputs);
  const Index most = std::min(weight.size(0), weight.size(1));
  HONE_CHECK(rank >= 1, kFit, "a rank >= 1", rank);
  const linalg::Svd svd = truncated_svd(target.whitened, std::min(rank, most));
  const Tensor root = svd.s.sqrt();
  const Tensor a = target.restore((svd.v * root).t().contiguous());
  const Tensor b = (svd.u * root).t();
  const Index missing = std::max<Index>(0, rank - most);  // rows of zeros
  return {at::constant_pad_nd(a, {0, 0, 0, missing}).to(target.type),
          at::constant_pad_nd(b, {0, 0, 0, missing}).to(target.type).contiguous()};
}

Index rank_for_error(const Tensor& weight, double max_error, const InputMoments* inputs) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  return rank_of_tail(at::linalg_svdvals(Target(weight, inputs).whitened), max_error);
}

FactorPair recompress(const FactorPair& factors, double max_error) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  const auto& [a, b] = factors;
  check_weight(a);
  check_weight(b);
  HONE_CHECK(a.size(0) == b.size(0), kFit, "factors of one rank",
             concat(a.size(0), " and ", b.size(0)));
  const auto [q1, r1] = at::linalg_qr(in_working_type(a.detach()).t());
  const auto [q2, r2] = at::linalg_qr(in_working_type(b.detach()).t());
  const auto [u, s, vh] = at::linalg_svd(at::mm(r1, r2.t()), /*full_matrices=*/false);
  const Index rank = rank_of_tail(s, max_error);
  const Tensor root = s.narrow(0, 0, rank).sqrt();
  const Tensor left = at::mm(q1, u.narrow(1, 0, rank) * root);
  const Tensor right = at::mm(q2, vh.narrow(0, 0, rank).t() * root);
  return {left.t().contiguous().to(a.scalar_type()), right.t().contiguous().to(b.scalar_type())};
}

Tensor fit_one_sided(const Tensor& weight, const Tensor& u) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  check_weight(weight);
  HONE_CHECK(u.dim() == 2 && u.size(1) == weight.size(0), kFit,
             concat("u [rank, ", weight.size(0), "]"), c10::str(u.sizes()));
  const Tensor w = in_working_type(weight.detach()), mix = u.to(w);
  return at::mm(inverse_gram(mix), at::mm(mix, w)).to(weight.scalar_type());
}

}  // namespace hone::sketch
