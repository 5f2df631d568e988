// SPDX-License-Identifier: Apache-2.0
// Covariance metrics against prototypes: matrices that are not few rows.
#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/paco/cov_measure.h"
#include "hone/kernels/paco/cov_metric.h"
#include "hone/kernels/paco/row_spectrum.h"

namespace hone::kernels {
namespace {

using Values = std::vector<double>;

// One call: rows [2 rank, dim] are B_1 over B_2, so that the mean covariance is ε I + ½ rowsᵀ rows.
struct Comparison {
  const char* op;
  const TwoViews& views;
  const CovPrototypes& prototypes;
  Index rows() const { return 2 * (views.parts - 1); }
};

class PrototypeMeasure {
 public:
  explicit PrototypeMeasure(const Comparison& call)
      : op_(call.op),
        prototypes_(call.prototypes),
        rows_(call.rows()),
        dim_(call.views.dim),
        epsilon_(call.views.epsilon) {}
  bool applies(Index image) const { return prototypes_.label[image] >= 0; }

 protected:
  const double* prototype(Index image) const {
    return prototypes_.matrices +
           prototypes_.label[image] * (prototypes_.diagonal ? dim_ : dim_ * dim_);
  }
  void require_definite(bool definite, Index image) const {
    if (definite) [[likely]]
      return;
    fail_argument(op_,
                  concat("Prototype ", prototypes_.label[image], " is not positive definite."));
  }

  const char* op_;
  CovPrototypes prototypes_;
  Index rows_ = 0, dim_ = 0;
  double epsilon_ = 0;
};

// Measures that need a matrix [dim, dim].
class FullMeasure : public PrototypeMeasure {
 public:
  explicit FullMeasure(const Comparison& call)
      : PrototypeMeasure(call), matrix_(static_cast<std::size_t>(dim_ * dim_)) {}

 protected:
  // matrix <- (mean covariance + sign P) scale.
  void combine(const double* rows, const double* prototype, double sign, double scale) {
    for (Index i = 0; i < dim_; ++i) {
      double* out = matrix_.data() + i * dim_;
      mix_row(rows + i, dim_, rows, rows_, dim_, out);
      for (Index j = 0; j < dim_; ++j)
        out[j] = scale * (out[j] / 2 + sign * prototype[i * dim_ + j]);
      out[i] += scale * epsilon_;
    }
  }
  double squared_norm() const {
    double sum = 0;
    inner_products(matrix_.data(), 1, matrix_.data(), 1, dim_ * dim_, &sum);
    return sum;
  }
  // ln det of a matrix by its factor.
  double log_det(const Values& factor) const {
    double sum = 0;
    for (Index i = 0; i < dim_; ++i)
      sum += std::log(factor[static_cast<std::size_t>(i * (dim_ + 1))]);
    return 2 * sum;
  }

  Values matrix_;
};

class FrobeniusFull : public FullMeasure {
 public:
  using FullMeasure::FullMeasure;

  double distance(const double* rows, Index image) {
    combine(rows, prototype(image), -1, 1);
    return squared_norm();
  }
  // 2 rows (Σ̄ - P).
  void grad(const double* rows, Index image, double* grad_rows) {
    combine(rows, prototype(image), -1, 2);
    mix_rows(rows, rows_, matrix_.data(), dim_, dim_, grad_rows);
  }
};

class SteinFull : public FullMeasure {
 public:
  explicit SteinFull(const Comparison& call) : FullMeasure(call), spectrum_(rows_, dim_) {}

  double distance(const double* rows, Index image) {
    const double* p = prototype(image);
    Values factor(p, p + dim_ * dim_);
    require_definite(cholesky(factor.data(), dim_), image);
    factor_middle(rows, image);
    spectrum_.load(rows, 1 / std::sqrt(2 * epsilon_));
    const double mean = static_cast<double>(dim_) * std::log(epsilon_) + spectrum_.log_det();
    return log_det(matrix_) - (mean + log_det(factor)) / 2;
  }
  // ½ rows (½(Σ̄ + P))⁻¹ - ½ rows Σ̄⁻¹.
  void grad(const double* rows, Index image, double* grad_rows) {
    Values by_mean(static_cast<std::size_t>(rows_ * dim_));
    factor_middle(rows, image);
    spectrum_.load(rows, 1 / std::sqrt(2 * epsilon_));
    spectrum_.divide(by_mean.data());
    std::copy_n(rows, by_mean.size(), grad_rows);
    cholesky_solve(matrix_.data(), dim_, grad_rows, rows_);
    for (std::size_t i = 0; i < by_mean.size(); ++i)
      grad_rows[i] = grad_rows[i] / 2 - by_mean[i] / std::sqrt(2 * epsilon_);
  }

 private:
  void factor_middle(const double* rows, Index image) {
    combine(rows, prototype(image), 1, 0.5);
    require_definite(cholesky(matrix_.data(), dim_), image);
  }

  RowSpectrum spectrum_;
};

class LogEuclideanFull : public FullMeasure {
 public:
  explicit LogEuclideanFull(const Comparison& call)
      : FullMeasure(call),
        spectrum_(rows_, dim_),
        root_(static_cast<std::size_t>(rows_ * dim_)),
        values_(static_cast<std::size_t>(dim_)),
        vectors_(matrix_.size()),
        scaled_(matrix_.size()),
        row_(values_.size()) {}

  double distance(const double* rows, Index image) {
    load(rows, image);
    return squared_norm();
  }
  void grad(const double* rows, Index image, double* grad_rows) {
    load(rows, image);
    for (double& value : matrix_) value *= 2;
    spectrum_.log_grad([&](const double* x, Index count,
                           double* out) { mix_rows(x, count, matrix_.data(), dim_, dim_, out); },
                       grad_rows);
    for (std::size_t i = 0; i < root_.size(); ++i) grad_rows[i] /= std::sqrt(2 * epsilon_);
  }

 private:
  // matrix <- ln Σ̄ - ln P, where ln Σ̄ = ln ε I + rootᵀ root.
  void load(const double* rows, Index image) {
    std::copy_n(prototype(image), matrix_.size(), matrix_.begin());
    symmetric_eigen(matrix_.data(), dim_, values_.data(), vectors_.data());
    for (double& value : values_) {
      require_definite(value > 0, image);
      value = std::log(value);
    }
    for (std::size_t i = 0; i < scaled_.size(); ++i)
      scaled_[i] = values_[i / values_.size()] * vectors_[i];
    spectrum_.load(rows, 1 / std::sqrt(2 * epsilon_));
    spectrum_.log_root(root_.data());
    for (Index i = 0; i < dim_; ++i) {
      double* out = matrix_.data() + i * dim_;
      mix_row(root_.data() + i, dim_, root_.data(), rows_, dim_, out);
      mix_row(scaled_.data() + i, dim_, vectors_.data(), dim_, dim_, row_.data());
      for (Index j = 0; j < dim_; ++j) out[j] -= row_[static_cast<std::size_t>(j)];
      out[i] += std::log(epsilon_);
    }
  }

  RowSpectrum spectrum_;
  Values root_, values_, vectors_, scaled_, row_;
};

// With diagonal matrices every metric is a sum over the variances s of the mean covariance and p of
// the prototype; a rule gives the term and its derivative by s.
struct FrobeniusTerm {
  static bool accepts(double) { return true; }
  static double value(double s, double p) { return (s - p) * (s - p); }
  static double slope(double s, double p) { return 2 * (s - p); }
};

struct SteinTerm {
  static bool accepts(double p) { return p > 0; }
  // ln ½(s + p) - ½ ln s p.
  static double value(double s, double p) {
    return std::log1p((s - p) / s * ((s - p) / p) / 4) / 2;
  }
  static double slope(double s, double p) { return (s - p) / (2 * s * (s + p)); }
};

struct LogEuclideanTerm {
  static bool accepts(double p) { return p > 0; }
  static double value(double s, double p) {
    const double difference = std::log(s / p);
    return difference * difference;
  }
  static double slope(double s, double p) { return 2 * std::log(s / p) / s; }
};

template <class Term>
class DiagonalMeasure : public PrototypeMeasure {
 public:
  using PrototypeMeasure::PrototypeMeasure;

  double distance(const double* rows, Index image) {
    const double* p = prototype(image);
    double sum = 0;
    for (Index i = 0; i < dim_; ++i) {
      require_definite(Term::accepts(p[i]), image);
      sum += Term::value(variance(rows, i), p[i]);
    }
    return sum;
  }
  void grad(const double* rows, Index image, double* grad_rows) {
    const double* p = prototype(image);
    for (Index i = 0; i < dim_; ++i) {
      require_definite(Term::accepts(p[i]), image);
      const double slope = Term::slope(variance(rows, i), p[i]);
      for (Index k = 0; k < rows_; ++k) grad_rows[k * dim_ + i] = slope * rows[k * dim_ + i];
    }
  }

 private:
  double variance(const double* rows, Index i) const {
    double sum = 0;
    for (Index k = 0; k < rows_; ++k) sum += rows[k * dim_ + i] * rows[k * dim_ + i];
    return epsilon_ + sum / 2;
  }
};

void check_prototypes(const Comparison& call) {
  check_views(call.op, call.views);
  const Index classes = call.prototypes.classes;
  for (Index image = 0; image < call.views.batch; ++image) {
    const Index label = call.prototypes.label[image];
    HONE_CHECK(label >= -1 && label < classes, call.op, concat("labels in [-1, ", classes, ")"),
               concat(label, " for image ", image));
  }
}

// Calls run(work of an image, a function that makes measures).
template <class Full, class Term, class Run>
void compare(const Comparison& call, const Run& run) {
  const Index batch = call.views.batch, dim = call.views.dim;
  HONE_TRACE_ZONE(call.op, {"batch", batch}, {"parts", call.views.parts}, {"dim", dim});
  check_prototypes(call);
  if (call.prototypes.diagonal) {
    run(512 + call.rows() * dim, [&] { return DiagonalMeasure<Term>(call); });
  } else {
    run(512 + dim * dim * dim, [&] { return Full(call); });
  }
}

template <class Full, class Term>
void measure(const Comparison& call, double* distance, Executor& executor) {
  compare<Full, Term>(call, [&](Index work, const auto& make) {
    measure_images(call.views, work, distance, executor, make);
  });
}

template <class Full, class Term>
void differentiate(const Comparison& call, const CovGrad& grad, Executor& executor) {
  compare<Full, Term>(call, [&](Index work, const auto& make) {
    differentiate_images(call.views, work, grad, executor, make);
  });
}

}  // namespace

void frobenius_sq(const TwoViews& views, const CovPrototypes& prototypes, double* distance,
                  Executor& executor) {
  measure<FrobeniusFull, FrobeniusTerm>({"frobenius_sq", views, prototypes}, distance, executor);
}

void stein(const TwoViews& views, const CovPrototypes& prototypes, double* distance,
           Executor& executor) {
  measure<SteinFull, SteinTerm>({"stein", views, prototypes}, distance, executor);
}

void log_euclidean_sq(const TwoViews& views, const CovPrototypes& prototypes, double* distance,
                      Executor& executor) {
  measure<LogEuclideanFull, LogEuclideanTerm>({"log_euclidean_sq", views, prototypes}, distance,
                                              executor);
}

void frobenius_sq_grad(const TwoViews& views, const CovPrototypes& prototypes, const CovGrad& grad,
                       Executor& executor) {
  differentiate<FrobeniusFull, FrobeniusTerm>({"frobenius_sq_grad", views, prototypes}, grad,
                                              executor);
}

void stein_grad(const TwoViews& views, const CovPrototypes& prototypes, const CovGrad& grad,
                Executor& executor) {
  differentiate<SteinFull, SteinTerm>({"stein_grad", views, prototypes}, grad, executor);
}

void log_euclidean_sq_grad(const TwoViews& views, const CovPrototypes& prototypes,
                           const CovGrad& grad, Executor& executor) {
  differentiate<LogEuclideanFull, LogEuclideanTerm>({"log_euclidean_sq_grad", views, prototypes},
                                                    grad, executor);
}

}  // namespace hone::kernels
