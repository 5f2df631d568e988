// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/row_spectrum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/kernels/paco/small_matrix.h"

namespace hone::kernels {

double log_ratio(double x) { return x == 0 ? 1 : std::log1p(x) / x; }

double log_ratio_slope(double x, double y) {
  if (x < y) std::swap(x, y);
  if (x < 0.05) {  // Σ_n (-1)^n / (n + 1) Σ_j x^j y^(n-1-j), below 1e-17 from n = 15 on
    double sum = 0, powers = 1, power_of_y = 1, sign = -1;
    for (int n = 1; n < 15; ++n) {
      sum += sign * powers / (n + 1);
      power_of_y *= y;
      powers = x * powers + power_of_y;
      sign = -sign;
    }
    return sum;
  }
  if (y < x / 2) return (log_ratio(x) - log_ratio(y)) / (x - y);
  // ln(1 + y) = ln(1 + x) + ln(1 + u) takes the difference of the arguments out of the quotient.
  const double u = (y - x) / (1 + x);
  return (x / (1 + x) * log_ratio(u) - std::log1p(x)) / x / y;
}

RowSpectrum::RowSpectrum(Index count, Index dim)
    : count_(count),
      dim_(dim),
      rows_(static_cast<std::size_t>(count * dim)),
      gram_(static_cast<std::size_t>(count * count)),
      values_(static_cast<std::size_t>(count)),
      vectors_(gram_.size()),
      rotated_(rows_.size()) {}

void RowSpectrum::load(const double* rows, double scale) {
  std::transform(rows, rows + count_ * dim_, rows_.begin(),
                 [=](double value) { return scale * value; });
  inner_products(rows_.data(), count_, rows_.data(), count_, dim_, gram_.data());
  symmetric_eigen(gram_.data(), count_, values_.data(), vectors_.data());
  for (double& value : values_) value = value < 0 ? 0 : value;  // by rounding; NaN stays
  mix_rows(vectors_.data(), count_, rows_.data(), count_, dim_, rotated_.data());
}

double RowSpectrum::log_det() const {
  double sum = 0;
  for (const double value : values_) sum += std::log1p(value);
  return sum;
}

template <class Function>
void RowSpectrum::apply(const Function& f, double* out) const {
  std::vector<double> weights = vectors_;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= f(values_[i / values_.size()]);
  mix_rows_transposed(weights.data(), count_, rotated_.data(), count_, dim_, out);
}

void RowSpectrum::divide(double* out) const {
  apply([](double value) { return 1 / (1 + value); }, out);
}

void RowSpectrum::log_root(double* out) const {
  apply([](double value) { return std::sqrt(log_ratio(value)); }, out);
}

void RowSpectrum::log_grad(TimesR times_r, double* grad) const {
  std::vector<double> times(rows_.size()), inner(gram_.size()), turned(rows_.size());
  times_r(rotated_.data(), count_, times.data());
  inner_products(times.data(), count_, rotated_.data(), count_, dim_, inner.data());
  for (std::size_t i = 0; i < inner.size(); ++i)
    inner[i] *= log_ratio_slope(values_[i / values_.size()], values_[i % values_.size()]);
  mix_rows(inner.data(), count_, rotated_.data(), count_, dim_, turned.data());
  const auto dim = static_cast<std::size_t>(dim_);
  for (std::size_t row = 0; row < values_.size(); ++row) {
    const double h = log_ratio(values_[row]);
    for (std::size_t i = row * dim; i < (row + 1) * dim; ++i)
      turned[i] = 2 * (h * times[i] + turned[i]);
  }
  mix_rows_transposed(vectors_.data(), count_, turned.data(), count_, dim_, grad);
}

}  // namespace hone::kernels
