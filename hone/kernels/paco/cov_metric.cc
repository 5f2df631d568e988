// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/cov_metric.h"

#include <cmath>
#include <vector>

#include "hone/kernels/paco/cov_measure.h"
#include "hone/kernels/paco/row_spectrum.h"

namespace hone::kernels {
namespace {

using Values = std::vector<double>;

// R = Fᵀ F - Gᵀ G of two sets of rows [count, dim]. With D = F - G and P = F + G it is
// ½(Dᵀ P + Pᵀ D), so that close sets lose no digits to the difference of large squares.
class RowDifference {
 public:
  RowDifference(Index count, Index dim)
      : count_(count),
        dim_(dim),
        difference_(static_cast<std::size_t>(count * dim)),
        sum_(difference_.size()),
        dd_(static_cast<std::size_t>(count * count)),
        pp_(dd_.size()),
        dp_(dd_.size()) {}

  void load(const double* f, const double* g) {
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      difference_[i] = f[i] - g[i];
      sum_[i] = f[i] + g[i];
    }
  }

  // ‖R‖² = ½ (tr D Dᵀ P Pᵀ + tr (D Pᵀ)²).
  double squared_norm() {
    inner_products(difference_.data(), count_, difference_.data(), count_, dim_, dd_.data());
    inner_products(sum_.data(), count_, sum_.data(), count_, dim_, pp_.data());
    inner_products(difference_.data(), count_, sum_.data(), count_, dim_, dp_.data());
    const auto count = static_cast<std::size_t>(count_);
    double twice = 0;
    for (std::size_t i = 0; i < dd_.size(); ++i)
      twice += dd_[i] * pp_[i] + dp_[i] * dp_[i % count * count + i / count];
    return twice / 2;
  }

  // out = factor x R of x [count, dim].
  void times(const double* x, double factor, double* out) const {
    const auto count = static_cast<std::size_t>(count_), dim = static_cast<std::size_t>(dim_);
    Values by_d(count * count), by_p(count * count), other(count * dim);
    inner_products(x, count_, difference_.data(), count_, dim_, by_d.data());
    inner_products(x, count_, sum_.data(), count_, dim_, by_p.data());
    mix_rows(by_d.data(), count_, sum_.data(), count_, dim_, out);
    mix_rows(by_p.data(), count_, difference_.data(), count_, dim_, other.data());
    for (std::size_t i = 0; i < other.size(); ++i) out[i] = factor / 2 * (out[i] + other[i]);
  }

 private:
  Index count_ = 0, dim_ = 0;
  Values difference_, sum_, dd_, pp_, dp_;
};

// What the measures of two views share: B_1 and B_2 are [rank, dim], one after the other.
class ViewMeasure {
 public:
  explicit ViewMeasure(const TwoViews& views)
      : rank_(views.parts - 1), dim_(views.dim), view_(rank_ * dim_), epsilon_(views.epsilon) {}
  bool applies(Index) const { return true; }

 protected:
  Index rank_ = 0, dim_ = 0, view_ = 0;
  double epsilon_ = 0;
};

class FrobeniusViews : public ViewMeasure {
 public:
  explicit FrobeniusViews(const TwoViews& views) : ViewMeasure(views), difference_(rank_, dim_) {}

  double distance(const double* rows, Index) {
    difference_.load(rows, rows + view_);
    return difference_.squared_norm();
  }
  // 4 B_1 R and -4 B_2 R with R = Σ_1 - Σ_2.
  void grad(const double* rows, Index, double* grad_rows) {
    difference_.load(rows, rows + view_);
    difference_.times(rows, 4, grad_rows);
    difference_.times(rows + view_, -4, grad_rows + view_);
  }

 private:
  RowDifference difference_;
};

// With A = [B_1; B_2] / √2, ½(Σ_1 + Σ_2) = ε I + Aᵀ A; the powers of ε cancel.
class SteinViews : public ViewMeasure {
 public:
  explicit SteinViews(const TwoViews& views)
      : ViewMeasure(views), one_(rank_, dim_), both_(2 * rank_, dim_) {}

  double distance(const double* rows, Index) {
    both_.load(rows, 1 / std::sqrt(2 * epsilon_));
    double value = both_.log_det();
    for (const double* view : {rows, rows + view_}) {
      one_.load(view, 1 / std::sqrt(epsilon_));
      value -= one_.log_det() / 2;
    }
    return value;
  }
  // B_v (½(Σ_1 + Σ_2))⁻¹ - B_v Σ_v⁻¹.
  void grad(const double* rows, Index, double* grad_rows) {
    Values own(static_cast<std::size_t>(view_));
    both_.load(rows, 1 / std::sqrt(2 * epsilon_));
    both_.divide(grad_rows);
    for (Index v = 0; v < 2; ++v) {
      one_.load(rows + v * view_, 1 / std::sqrt(epsilon_));
      one_.divide(own.data());
      double* out = grad_rows + v * view_;
      for (std::size_t i = 0; i < own.size(); ++i)
        out[i] = (std::sqrt(2) * out[i] - own[i]) / std::sqrt(epsilon_);
    }
  }

 private:
  RowSpectrum one_, both_;
};

// ln Σ_v = ln ε I + F_vᵀ F_v, of which the first part cancels.
class LogEuclideanViews : public ViewMeasure {
 public:
  explicit LogEuclideanViews(const TwoViews& views)
      : ViewMeasure(views),
        spectrum_{RowSpectrum(rank_, dim_), RowSpectrum(rank_, dim_)},
        roots_(static_cast<std::size_t>(2 * view_)),
        difference_(rank_, dim_) {}

  double distance(const double* rows, Index) {
    load(rows);
    return difference_.squared_norm();
  }
  void grad(const double* rows, Index, double* grad_rows) {
    load(rows);
    for (Index v = 0; v < 2; ++v) {
      const double twice = v == 0 ? 2 : -2;
      spectrum_[v].log_grad(
          [&](const double* x, Index, double* out) { difference_.times(x, twice, out); },
          grad_rows + v * view_);
    }
    for (Index i = 0; i < 2 * view_; ++i) grad_rows[i] /= std::sqrt(epsilon_);
  }

 private:
  void load(const double* rows) {
    for (Index v = 0; v < 2; ++v) {
      spectrum_[v].load(rows + v * view_, 1 / std::sqrt(epsilon_));
      spectrum_[v].log_root(roots_.data() + v * view_);
    }
    difference_.load(roots_.data(), roots_.data() + view_);
  }

  RowSpectrum spectrum_[2];
  Values roots_;
  RowDifference difference_;
};

// With a share for the eigenvalues, which dominate where parts are short.
Index work_of(const TwoViews& views) {
  const Index rows = 2 * (views.parts - 1);
  return 512 + rows * rows * (views.dim + 16 * rows);
}

template <class Measure>
void measure_views(const char* op, const TwoViews& views, double* distance, Executor& executor) {
  HONE_TRACE_ZONE(op, {"batch", views.batch}, {"parts", views.parts}, {"dim", views.dim});
  check_views(op, views);
  measure_images(views, work_of(views), distance, executor, [&] { return Measure(views); });
}

template <class Measure>
void differentiate_views(const char* op, const TwoViews& views, const CovGrad& grad,
                         Executor& executor) {
  HONE_TRACE_ZONE(op, {"batch", views.batch}, {"parts", views.parts}, {"dim", views.dim});
  check_views(op, views);
  differentiate_images(views, work_of(views), grad, executor, [&] { return Measure(views); });
}

}  // namespace

void frobenius_sq(const TwoViews& views, double* distance, Executor& executor) {
  measure_views<FrobeniusViews>("frobenius_sq", views, distance, executor);
}

void stein(const TwoViews& views, double* distance, Executor& executor) {
  measure_views<SteinViews>("stein", views, distance, executor);
}

void log_euclidean_sq(const TwoViews& views, double* distance, Executor& executor) {
  measure_views<LogEuclideanViews>("log_euclidean_sq", views, distance, executor);
}

void frobenius_sq_grad(const TwoViews& views, const CovGrad& grad, Executor& executor) {
  differentiate_views<FrobeniusViews>("frobenius_sq_grad", views, grad, executor);
}

void stein_grad(const TwoViews& views, const CovGrad& grad, Executor& executor) {
  differentiate_views<SteinViews>("stein_grad", views, grad, executor);
}

void log_euclidean_sq_grad(const TwoViews& views, const CovGrad& grad, Executor& executor) {
  differentiate_views<LogEuclideanViews>("log_euclidean_sq_grad", views, grad, executor);
}

}  // namespace hone::kernels
