// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "hone/core/machine/measurer.h"

namespace hone::measure {

// The quantile q in [0, 1] of at least one sample, by linear interpolation at position q * (n - 1)
// of the sorted samples (definition 7 of Hyndman & Fan, "Sample quantiles in statistical packages",
// 1996).
double quantile(std::span<const double> samples, double q);
inline double median(std::span<const double> samples) { return quantile(samples, 0.5); }

Spread spread_of(std::span<const double> samples);

// Half the width of the median's 95 % interval, relative to the median. The interval is between the
// order statistics of rank n/2 -+ 0.98 sqrt(n) (binomial, normal approximation), so it assumes no
// distribution; below 6 samples it is [smallest, largest].
double median_half_width(std::span<const double> samples);

// median(against) / median(impl) with a 95 % percentile interval from kBootstrapDraws resamples of
// the rounds. A resample draws both samples of a round together. Both spans have the same length,
// at least 1.
RatioInterval bootstrap_ratio(std::span<const double> impl, std::span<const double> against,
                              std::uint64_t seed);
inline constexpr Index kBootstrapDraws = 2000;

// The largest |median of ten rounds / median of the first ten - 1| over consecutive groups of ten
// rounds; 0 below 20 samples.
double drift_of(std::span<const double> samples);

}  // namespace hone::measure
