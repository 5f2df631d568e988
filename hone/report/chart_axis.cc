// SPDX-License-Identifier: Apache-2.0
#include "hone/report/chart_axis.h"

#include <algorithm>
#include <cmath>

#include "hone/report/figure.h"

namespace hone::report {
namespace {

// The smallest of 1, 2, 5 · 10^k that is at least `size`.
double round_step(double size) {
  const double power = std::pow(10, std::floor(std::log10(size)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= size * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

ChartAxis::ChartAxis(Range data, Range pixels, bool logarithmic, int target_ticks, Fit fit)
    : data_(data), pixels_(pixels), logarithmic_(logarithmic && data.low > 0) {
  if (!std::isfinite(data_.low) || !std::isfinite(data_.high)) data_ = {0, 1};
  if (data_.high <= data_.low) {
    const double margin = data_.low == 0 ? 1 : std::abs(data_.low) * 0.1;
    data_ = {data_.low - margin, data_.low + margin};
    logarithmic_ = logarithmic_ && data_.low > 0;
  }
  if (logarithmic_) {
    find_logarithmic_ticks(target_ticks);
  } else {
    find_linear_ticks(target_ticks, fit);
  }
}

double ChartAxis::place(double value) const {
  const auto scale = [&](double v) {
    return logarithmic_ ? std::log(std::max(v, data_.low * 1e-3)) : v;
  };
  const double low = scale(data_.low), high = scale(data_.high);
  return pixels_.low + (scale(value) - low) / (high - low) * (pixels_.high - pixels_.low);
}

void ChartAxis::find_linear_ticks(int count, Fit fit) {
  const double step = round_step((data_.high - data_.low) / count);
  const bool whole = fit == Fit::Ticks;
  const double first = whole ? std::floor(data_.low / step + 1e-9) : std::ceil(data_.low / step);
  const double last = whole ? std::ceil(data_.high / step - 1e-9) : std::floor(data_.high / step);
  for (double i = first; i <= last; ++i) ticks_.push_back(i * step);
  if (whole) data_ = {first * step, last * step};
  decimals_ = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
}

// Tries finer sets until there are enough ticks.
void ChartAxis::find_logarithmic_ticks(int count) {
  const double margin = std::pow(data_.high / data_.low, 0.06);
  data_ = {data_.low / margin, data_.high * margin};
  const std::vector<std::vector<double>> sets = {
      {1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 5, 7}, {1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8}};
  for (const auto& set : sets) {
    std::vector<double> found;
    for (int power = static_cast<int>(std::floor(std::log10(data_.low)));
         power <= static_cast<int>(std::ceil(std::log10(data_.high))); ++power) {
      for (double factor : set) {
        const double tick = factor * std::pow(10, power);
        if (tick >= data_.low && tick <= data_.high) found.push_back(tick);
      }
    }
    const bool is_too_many = static_cast<int>(found.size()) > 2 * count;
    if (is_too_many && ticks_.size() >= 2) break;
    ticks_ = found;
    if (static_cast<int>(ticks_.size()) >= count) break;
  }
  if (ticks_.size() < 3) {  // For a narrow range, linear ticks at their logarithmic positions.
    ticks_.clear();
    const double step = round_step((data_.high - data_.low) / count);
    for (double tick = std::ceil(data_.low / step) * step; tick <= data_.high; tick += step) {
      ticks_.push_back(tick);
    }
    decimals_ = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  }
}

std::string ChartAxis::format_tick(double value) const {
  if (decimals_ >= 0) return format_number(std::abs(value) < 1e-12 ? 0 : value, decimals_);
  const double size = std::abs(value);
  const int decimals = size >= 10  ? 0
                       : size >= 1 ? (value == std::floor(value) ? 0 : 1)
                                   : 1 - static_cast<int>(std::floor(std::log10(size)));
  std::string text = format_number(value, decimals);
  while (text.find('.') != std::string::npos && text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace hone::report
