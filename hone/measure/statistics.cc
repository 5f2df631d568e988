// SPDX-License-Identifier: Apache-2.0
#include "hone/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::measure {
namespace {

constexpr Index kDriftRounds = 10;

Index size_of(std::span<const double> samples) { return static_cast<Index>(samples.size()); }

double quantile_of_sorted(std::span<const double> sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(sorted[low], sorted[high], position - static_cast<double>(low));
}

std::vector<double> sorted_copy(std::span<const double> samples) {
  HONE_REQUIRE(!samples.empty(), "measure", "There is no sample.");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return sorted;
}

// The median in linear time. Reorders `values`.
double median_in_place(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return 0.5 * (*std::max_element(values.begin(), middle) + *middle);
}

}  // namespace

double quantile(std::span<const double> samples, double q) {
  HONE_CHECK(q >= 0 && q <= 1, "quantile", "a fraction in [0, 1]", q);
  return quantile_of_sorted(sorted_copy(samples), q);
}

Spread spread_of(std::span<const double> samples) {
  const auto sorted = sorted_copy(samples);
  return {.median = quantile_of_sorted(sorted, 0.5),
          .p10 = quantile_of_sorted(sorted, 0.1),
          .p90 = quantile_of_sorted(sorted, 0.9),
          .n = size_of(samples)};
}

double median_half_width(std::span<const double> samples) {
  const auto sorted = sorted_copy(samples);
  const double n = static_cast<double>(sorted.size());
  const double reach = 0.98 * std::sqrt(n);  // 1.96 / 2
  const double low = std::max(1.0, std::floor(n / 2 - reach));
  const double high = std::min(n, std::ceil(n / 2 + 1 + reach));
  const double width =
      sorted[static_cast<std::size_t>(high) - 1] - sorted[static_cast<std::size_t>(low) - 1];
  return 0.5 * width / quantile_of_sorted(sorted, 0.5);
}

RatioInterval bootstrap_ratio(std::span<const double> impl, std::span<const double> against,
                              std::uint64_t seed) {
  HONE_CHECK(impl.size() == against.size(), "bootstrap", concat(against.size(), " paired samples"),
             impl.size());
  RatioInterval result;
  result.ratio = median(against) / median(impl);
  PhiloxStream random(seed);
  std::vector<double> ratios(static_cast<std::size_t>(kBootstrapDraws));
  std::vector<double> ours(impl.size()), theirs(impl.size());
  for (double& ratio : ratios) {
    for (std::size_t i = 0; i < impl.size(); ++i) {
      const std::size_t round = random.below(static_cast<std::uint32_t>(impl.size()));
      ours[i] = impl[round];
      theirs[i] = against[round];
    }
    ratio = median_in_place(theirs) / median_in_place(ours);
  }
  std::ranges::sort(ratios);
  result.low = quantile_of_sorted(ratios, 0.025);
  result.high = quantile_of_sorted(ratios, 0.975);
  return result;
}

double drift_of(std::span<const double> samples) {
  double drift = 0;
  for (Index begin = kDriftRounds; begin + kDriftRounds <= size_of(samples);
       begin += kDriftRounds) {
    const double change = median(samples.subspan(static_cast<std::size_t>(begin), kDriftRounds)) /
                          median(samples.first(kDriftRounds));
    drift = std::max(drift, std::abs(change - 1));
  }
  return drift;
}

}  // namespace hone::measure
