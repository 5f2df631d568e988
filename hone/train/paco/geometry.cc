// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/geometry.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/autograd.h>

#include <cmath>

#include "hone/core/check.h"
#include "hone/kernels/paco/cov_metric.h"
#include "hone/kernels/paco/part_factor.h"
#include "hone/kernels/paco/ridge_distance.h"
#include "hone/train/first_derivative.h"
#include "hone/train/interop.h"

namespace hone::paco {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kPooledRidge = 1e-3, kLeastSquare = 1e-30;

constexpr std::string_view kGeometry = "part geometry";

double* data_of(const Tensor& tensor) { return tensor.data_ptr<double>(); }

Tensor dense(const Tensor& tensor) { return tensor.to(at::kDouble).contiguous(); }

void check_options(const MetricOptions& options, Index parts) {
  constexpr std::string_view kOp = "part_metric";
  HONE_CHECK(options.floor > 0 && std::isfinite(options.floor), kOp, "a finite floor above 0",
             options.floor);
  const bool shrinks = options.delta == DeltaMode::Shrink;
  HONE_CHECK(options.rho >= 0 && (shrinks ? options.rho < 1 : std::isfinite(options.rho)), kOp,
             shrinks ? "rho in [0, 1)" : "a finite rho of at least 0", options.rho);
  HONE_CHECK(options.pooled >= 0 && options.pooled <= 1, kOp, "pooled in [0, 1]", options.pooled);
  // One part has no covariance: P would be its ridge alone, and distances by it without bounds.
  HONE_CHECK(options.pooled == 0 || parts > 1, kOp, "at least two parts for pooled metrics", parts);
}

struct Sizes {
  Index batch, parts, dim;
  explicit Sizes(const Tensor& z) : batch(z.size(0)), parts(z.size(1)), dim(z.size(2)) {}
  Index rank() const { return 2 * (parts - 1); }
};

struct PartFactorFunction : torch::autograd::Function<PartFactorFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& z1, const Tensor& z2) {
    const Tensor a = z1.contiguous(), b = z2.contiguous();
    const Sizes size(a);
    Tensor factor = at::empty({size.batch, size.rank(), size.dim}, a.options());
    kernels::part_factor({.batch = size.batch,
                          .parts = size.parts,
                          .dim = size.dim,
                          .z1 = data_of(a),
                          .z2 = data_of(b),
                          .factor = data_of(factor)},
                         libtorch_executor());
    context->saved_data["parts"] = size.parts;
    return factor;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative(kGeometry);
    const Tensor grad = grads[0].contiguous();
    const Index parts = context->saved_data["parts"].toInt();
    const Tensor by_z1 = at::zeros({grad.size(0), parts, grad.size(2)}, grad.options());
    const Tensor by_z2 = at::zeros_like(by_z1);
    kernels::part_factor_grad({.batch = grad.size(0),
                               .parts = parts,
                               .dim = grad.size(2),
                               .grad_factor = data_of(grad),
                               .grad_z1 = data_of(by_z1),
                               .grad_z2 = data_of(by_z2)},
                              libtorch_executor());
    return {by_z1, by_z2};
  }
};

// The results of kernels::ridge_distance.
struct RidgeSolution {
  Tensor y, w, q;
};

RidgeSolution solve_ridge(const Tensor& x, const Tensor& factor, const Tensor& delta,
                          const Tensor& chol) {
  const Tensor rows = x.contiguous(), a = factor.contiguous(), d = delta.contiguous();
  const Index batch = rows.size(0), count = rows.size(1), rank = a.size(1);
  const RidgeSolution out{at::empty({batch, count, rank}, rows.options()), at::empty_like(rows),
                          at::empty({batch, count}, rows.options())};
  kernels::ridge_distance({.batch = batch,
                           .rows = count,
                           .rank = rank,
                           .dim = rows.size(2),
                           .factor = data_of(a),
                           .chol = data_of(chol),
                           .delta = data_of(d),
                           .x = data_of(rows),
                           .y = data_of(out.y),
                           .w = data_of(out.w),
                           .q = data_of(out.q)},
                          libtorch_executor());
  return out;
}

struct RidgeDistanceFunction : torch::autograd::Function<RidgeDistanceFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& factor,
                        const Tensor& delta, const Tensor& chol) {
    const RidgeSolution solution = solve_ridge(x, factor, delta, chol);
    context->save_for_backward({solution.y, solution.w});
    return solution.q;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative(kGeometry);
    const auto saved = context->get_saved_variables();
    const Tensor grad = grads[0].contiguous(), &y = saved[0], &w = saved[1];
    const Index batch = w.size(0), rank = y.size(2), dim = w.size(2);
    Tensor by_x, by_factor, by_delta;
    if (context->needs_input_grad(0)) by_x = at::empty_like(w);
    if (context->needs_input_grad(1)) by_factor = at::empty({batch, rank, dim}, w.options());
    if (context->needs_input_grad(2)) by_delta = at::empty({batch}, w.options());
    const auto place = [](const Tensor& to) { return to.defined() ? data_of(to) : nullptr; };
    kernels::ridge_distance_grad({.batch = batch,
                                  .rows = w.size(1),
                                  .rank = rank,
                                  .dim = dim,
                                  .y = data_of(y),
                                  .w = data_of(w),
                                  .grad_q = data_of(grad),
                                  .grad_x = place(by_x),
                                  .grad_factor = place(by_factor),
                                  .grad_delta = place(by_delta)},
                                 libtorch_executor());
    return {by_x, by_factor, by_delta, Tensor()};
  }
};

// ---- covariance distances

kernels::TwoViews views_of(const Tensor& z1, const Tensor& z2, double epsilon) {
  const Sizes size(z1);
  return {.batch = size.batch,
          .parts = size.parts,
          .dim = size.dim,
          .z1 = data_of(z1),
          .z2 = data_of(z2),
          .epsilon = epsilon};
}

kernels::CovPrototypes prototypes_of(const Tensor& prototypes, const Tensor& label) {
  return {.classes = prototypes.size(0),
          .matrices = data_of(prototypes),
          .label = label.data_ptr<std::int64_t>(),
          .diagonal = prototypes.dim() == 2};
}

void measure(SocMetric metric, const kernels::TwoViews& views, double* to) {
  switch (metric) {
    case SocMetric::Frobenius:
      return kernels::frobenius_sq(views, to, libtorch_executor());
    case SocMetric::Stein:
      return kernels::stein(views, to, libtorch_executor());
    case SocMetric::LogEuclidean:
      return kernels::log_euclidean_sq(views, to, libtorch_executor());
  }
}
void measure(SocMetric metric, const kernels::TwoViews& views,
             const kernels::CovPrototypes& prototypes, double* to) {
  switch (metric) {
    case SocMetric::Frobenius:
      return kernels::frobenius_sq(views, prototypes, to, libtorch_executor());
    case SocMetric::Stein:
      return kernels::stein(views, prototypes, to, libtorch_executor());
    case SocMetric::LogEuclidean:
      return kernels::log_euclidean_sq(views, prototypes, to, libtorch_executor());
  }
}
void differentiate(SocMetric metric, const kernels::TwoViews& views, const kernels::CovGrad& grad) {
  switch (metric) {
    case SocMetric::Frobenius:
      return kernels::frobenius_sq_grad(views, grad, libtorch_executor());
    case SocMetric::Stein:
      return kernels::stein_grad(views, grad, libtorch_executor());
    case SocMetric::LogEuclidean:
      return kernels::log_euclidean_sq_grad(views, grad, libtorch_executor());
  }
}
void differentiate(SocMetric metric, const kernels::TwoViews& views,
                   const kernels::CovPrototypes& prototypes, const kernels::CovGrad& grad) {
  switch (metric) {
    case SocMetric::Frobenius:
      return kernels::frobenius_sq_grad(views, prototypes, grad, libtorch_executor());
    case SocMetric::Stein:
      return kernels::stein_grad(views, prototypes, grad, libtorch_executor());
    case SocMetric::LogEuclidean:
      return kernels::log_euclidean_sq_grad(views, prototypes, grad, libtorch_executor());
  }
}

// With prototypes and label, or, where those are absent, between the views.
struct CovarianceFunction : torch::autograd::Function<CovarianceFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& z1, const Tensor& z2,
                        std::int64_t metric, double epsilon,
                        const std::optional<Tensor>& prototypes,
                        const std::optional<Tensor>& label) {
    const Tensor a = z1.contiguous(), b = z2.contiguous();
    const Tensor distance = at::empty({a.size(0)}, a.options());
    const auto kind = static_cast<SocMetric>(metric);
    const kernels::TwoViews views = views_of(a, b, epsilon);
    if (prototypes) {
      measure(kind, views, prototypes_of(*prototypes, *label), data_of(distance));
      context->save_for_backward({a, b, *prototypes, *label});
    } else {
      measure(kind, views, data_of(distance));
      context->save_for_backward({a, b});
    }
    context->saved_data["metric"] = metric;
    context->saved_data["epsilon"] = epsilon;
    return distance;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative(kGeometry);
    const auto saved = context->get_saved_variables();
    const Tensor grad = grads[0].contiguous();
    const Tensor by_z1 = at::empty_like(saved[0]), by_z2 = at::empty_like(saved[1]);
    const auto kind = static_cast<SocMetric>(context->saved_data["metric"].toInt());
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const kernels::TwoViews views = views_of(saved[0], saved[1], epsilon);
    const kernels::CovGrad to{
        .grad_distance = data_of(grad), .grad_z1 = data_of(by_z1), .grad_z2 = data_of(by_z2)};
    if (saved.size() == 4) {
      differentiate(kind, views, prototypes_of(saved[2], saved[3]), to);
    } else {
      differentiate(kind, views, to);
    }
    return {by_z1, by_z2, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

void require_frobenius(SocMetric metric, const Tensor& z) {
  if (metric == SocMetric::Frobenius) return;
  fail_unsupported("covariance distance", concat("Frobenius on ", z.device().str()),
                   metric == SocMetric::Stein ? "Stein" : "LogEuclidean");
}

// ---- metrics

using FactorOf = Tensor (*)(const Tensor& z1, const Tensor& z2);

Tensor factor_by_kernel(const Tensor& z1, const Tensor& z2) {
  return PartFactorFunction::apply(z1, z2);
}

// H / sqrt(2 (parts - 1)), [parts - 1, parts].
Tensor helmert(Index parts, const Tensor& like) {
  const Tensor matrix = at::zeros({parts - 1, parts}, at::TensorOptions(at::kDouble));
  for (Index i = 1; i < parts; ++i) {
    const double scale = 1 / std::sqrt(static_cast<double>(2 * i * (i + 1) * (parts - 1)));
    matrix.select(0, i - 1).slice(0, 0, i).fill_(scale);
    matrix.select(0, i - 1).select(0, i).fill_(-static_cast<double>(i) * scale);
  }
  return matrix.to(like.options());
}

Tensor factor_by_operators(const Tensor& z1, const Tensor& z2) {
  const Tensor rows = helmert(z1.size(1), z1);
  return at::cat({at::matmul(rows, z1), at::matmul(rows, z2)}, 1);
}

// L of the mean of A Aᵀ over the batch plus a ridge.
Tensor pooled_root(const Tensor& factor, double floor) {
  const Tensor rows = factor.detach().to(at::kDouble).flatten(0, 1);
  const Tensor mean =
      at::matmul(rows.t(), rows) / static_cast<double>(std::max<Index>(factor.size(0), 1));
  const Tensor ridge = (kPooledRidge * mean.diagonal().mean()).clamp_min(floor);
  const Tensor identity = at::eye(mean.size(0), mean.options());
  return at::linalg_cholesky(mean + ridge * identity);
}

// x L⁻ᵀ
Tensor whiten(const Tensor& x, const Tensor& root) {
  const Tensor flat = x.flatten(0, 1).to(at::kDouble);
  const Tensor white = at::linalg_solve_triangular(root, flat.t(), /*upper=*/false).t();
  return white.reshape(x.sizes()).to(x.scalar_type());
}

void check_rows(const char* op, const PartMetric& metric, const Tensor& x) {
  const Tensor& factor = metric.factor;
  HONE_CHECK(x.dim() == 3 && x.size(0) == factor.size(0) && x.size(2) == factor.size(2), op,
             concat("[", factor.size(0), ", rows, ", factor.size(2), "]"), c10::str(x.sizes()));
}

// y of ridge_distance_sq, without gradient.
Tensor coefficients_by_operators(const PartMetric& metric, const Tensor& x) {
  const at::NoGradGuard no_grad;
  const Tensor right = at::matmul(metric.factor, x.transpose(1, 2)).to(at::kDouble);
  return at::cholesky_solve(right, metric.chol).transpose(1, 2).to(x.scalar_type());
}

PartMetric make_metric(const Tensor& z1, const Tensor& z2, const MetricOptions& options,
                       FactorOf factor_of) {
  PartMetric metric;
  metric.z1 = z1;
  metric.z2 = z2;
  const auto dim = static_cast<double>(z1.size(2));
  if (options.pooled > 0) {
    const Tensor root = pooled_root(factor_of(z1.detach(), z2.detach()), options.floor);
    metric.z1 = whiten(z1, root);
    metric.z2 = whiten(z2, root);
  }
  Tensor factor = factor_of(metric.z1, metric.z2);
  if (!options.grad) factor = factor.detach();
  if (options.pooled > 0) {
    metric.factor = factor * std::sqrt(1 - options.pooled);
    metric.delta = at::full({z1.size(0)}, options.pooled, factor.options());
    return metric;
  }
  const auto share = [&] { return factor.square().sum({1, 2}) * (options.rho / dim); };
  metric.factor = factor;
  switch (options.delta) {
    case DeltaMode::Absolute:
      metric.delta = at::full({z1.size(0)}, options.floor, factor.options());
      break;
    case DeltaMode::Relative:
      metric.delta = share().clamp_min(options.floor);
      break;
    case DeltaMode::Shrink:
      metric.delta = share() + options.floor;
      metric.factor = factor * std::sqrt(1 - options.rho);
      break;
  }
  return metric;
}

}  // namespace

void check_parts(const Tensor& z1, const Tensor& z2) {
  constexpr std::string_view kOp = "part geometry";
  HONE_CHECK(z1.defined() && z2.defined() && z1.dim() == 3 && z2.sizes().equals(z1.sizes()) &&
                 z1.size(1) > 0 && z1.size(2) > 0,
             kOp, "two views of parts [batch, parts, dim]",
             z1.defined() && z2.defined()
                 ? concat(c10::str(z1.sizes()), " and ", c10::str(z2.sizes()))
                 : std::string("an undefined tensor"));
  HONE_CHECK(z1.is_floating_point() && z2.scalar_type() == z1.scalar_type(), kOp,
             "parts of one floating type",
             concat(c10::toString(z1.scalar_type()), " and ", c10::toString(z2.scalar_type())));
  HONE_CHECK(z2.device() == z1.device(), kOp, concat("parts on ", z1.device().str()),
             z2.device().str());
}

namespace composed {

PartMetric part_metric(const Tensor& z1, const Tensor& z2, const MetricOptions& options) {
  check_parts(z1, z2);
  check_options(options, z1.size(1));
  PartMetric metric = make_metric(z1, z2, options, factor_by_operators);
  const at::NoGradGuard no_grad;
  const Tensor wide = metric.factor.to(at::kDouble);
  const Tensor gram = at::matmul(wide, wide.transpose(1, 2));
  const Tensor ridge = metric.delta.to(at::kDouble).reshape({-1, 1, 1});
  metric.chol = at::linalg_cholesky(gram + ridge * at::eye(gram.size(1), gram.options()));
  return metric;
}

Tensor ridge_distance_sq(const PartMetric& metric, const Tensor& x) {
  const Tensor y = coefficients_by_operators(metric, x);
  const Tensor rest = x - at::matmul(y, metric.factor);
  return rest.square().sum(2) / metric.delta.unsqueeze(1) + y.square().sum(2);
}

Tensor ridge_coordinates(const PartMetric& metric, const Tensor& x) {
  const at::NoGradGuard no_grad;
  const Tensor y = coefficients_by_operators(metric, x);
  const Tensor rest = x - at::matmul(y, metric.factor);
  return at::cat({rest / metric.delta.sqrt().reshape({-1, 1, 1}), y}, 2);
}

Tensor frobenius_distance(const Tensor& z1, const Tensor& z2) {
  const Index rank = z1.size(1) - 1;
  if (rank == 0) return (z1 - z1).sum({1, 2});
  const Tensor rows = factor_by_operators(z1, z2);
  const Tensor one = rows.slice(1, 0, rank), two = rows.slice(1, rank);
  const Tensor difference = one - two, sum = one + two;
  const auto gram = [](const Tensor& a, const Tensor& b) {
    return at::matmul(a, b.transpose(1, 2));
  };
  const Tensor cross = gram(difference, sum);
  const Tensor square = (gram(difference, difference) * gram(sum, sum)).sum({1, 2}) +
                        (cross * cross.transpose(1, 2)).sum({1, 2});
  return 2 * square;
}

Tensor frobenius_prototype_distance(const Tensor& z1, const Tensor& z2, double epsilon,
                                    const Tensor& prototypes, const Tensor& label) {
  const Tensor rows = factor_by_operators(z1, z2);
  const Tensor own = prototypes.index_select(0, label.clamp_min(0)).to(z1.scalar_type());
  const Tensor used = (label >= 0).to(z1.scalar_type());
  if (prototypes.dim() == 2) {
    return (rows.square().sum(1) + epsilon - own).square().sum(1) * used;
  }
  const Tensor mean =
      at::matmul(rows.transpose(1, 2), rows) + epsilon * at::eye(rows.size(2), rows.options());
  return (mean - own).square().sum({1, 2}) * used;
}

}  // namespace composed

PartMetric part_metric(const Tensor& z1, const Tensor& z2, const MetricOptions& options) {
  check_parts(z1, z2);
  if (!z1.is_cpu()) return composed::part_metric(z1, z2, options);
  check_options(options, z1.size(1));
  PartMetric metric = make_metric(dense(z1), dense(z2), options, factor_by_kernel);
  const at::NoGradGuard no_grad;
  const Tensor factor = metric.factor.contiguous(), delta = metric.delta.contiguous();
  const Index batch = factor.size(0), rank = factor.size(1);
  metric.chol = at::empty({batch, rank, rank}, factor.options());
  const Tensor logdet = at::empty({batch}, factor.options());
  kernels::ridge_gram({.batch = batch,
                       .rank = rank,
                       .dim = factor.size(2),
                       .factor = data_of(factor),
                       .delta = data_of(delta),
                       .chol = data_of(metric.chol),
                       .logdet = data_of(logdet)},
                      libtorch_executor());
  return metric;
}

Tensor ridge_distance_sq(const PartMetric& metric, const Tensor& x) {
  check_rows("ridge_distance_sq", metric, x);
  if (!x.is_cpu()) return composed::ridge_distance_sq(metric, x);
  return RidgeDistanceFunction::apply(x.to(at::kDouble), metric.factor, metric.delta, metric.chol);
}

Tensor ridge_coordinates(const PartMetric& metric, const Tensor& x) {
  check_rows("ridge_coordinates", metric, x);
  if (!x.is_cpu()) return composed::ridge_coordinates(metric, x);
  const at::NoGradGuard no_grad;
  const RidgeSolution solution =
      solve_ridge(x.to(at::kDouble), metric.factor, metric.delta, metric.chol);
  return at::cat({solution.w * metric.delta.sqrt().reshape({-1, 1, 1}), solution.y}, 2);
}

Tensor root_of(const Tensor& q) {
  const Tensor positive = q > kLeastSquare;
  return at::where(positive, q, at::ones_like(q)).sqrt() * positive.to(q.scalar_type());
}

Tensor covariance_distance(SocMetric metric, const Tensor& z1, const Tensor& z2, double epsilon) {
  check_parts(z1, z2);
  if (!z1.is_cpu()) {
    require_frobenius(metric, z1);
    return composed::frobenius_distance(z1, z2);
  }
  return CovarianceFunction::apply(dense(z1), dense(z2), static_cast<std::int64_t>(metric), epsilon,
                                   std::optional<Tensor>(), std::optional<Tensor>());
}

Tensor prototype_distance(SocMetric metric, const Tensor& z1, const Tensor& z2, double epsilon,
                          const Tensor& prototypes, const Tensor& label) {
  check_parts(z1, z2);
  const Index dim = z1.size(2);
  const bool fits = (prototypes.dim() == 2 || prototypes.dim() == 3) && prototypes.size(1) == dim &&
                    prototypes.size(-1) == dim;
  HONE_CHECK(fits, "prototype_distance", concat("prototypes of dim ", dim),
             c10::str(prototypes.sizes()));
  HONE_CHECK(label.dim() == 1 && label.size(0) == z1.size(0) && label.scalar_type() == at::kLong,
             "prototype_distance", concat(z1.size(0), " int64 labels"), c10::str(label.sizes()));
  if (!z1.is_cpu()) {
    require_frobenius(metric, z1);
    return composed::frobenius_prototype_distance(z1, z2, epsilon, prototypes, label);
  }
  const Index classes = prototypes.size(0);
  const Index largest = label.numel() > 0 ? label.max().item<Index>() : -1;
  HONE_CHECK(largest < classes, "prototype_distance", concat("labels below ", classes), largest);
  // Copies of those of the batch alone, which the backward pass keeps.
  const auto [used, row] = at::_unique(label.clamp_min(0), /*sorted=*/true, /*inverse=*/true);
  const Tensor own = classes > 0 ? prototypes.detach().index_select(0, used) : prototypes.detach();
  return CovarianceFunction::apply(dense(z1), dense(z2), static_cast<std::int64_t>(metric), epsilon,
                                   std::optional<Tensor>(dense(own)),
                                   std::optional<Tensor>(at::where(label < 0, label, row)));
}

}  // namespace hone::paco
