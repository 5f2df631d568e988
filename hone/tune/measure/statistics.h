// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "hone/core/measurer.h"

namespace hone::tune {

// Quantile q in [0, 1] of at least one sample, by linear interpolation between order statistics:
// position q * (n - 1) in the sorted samples (definition 7 of Hyndman & Fan, "Sample quantiles in
// statistical packages", 1996).
double quantile(std::span<const double> samples, double q);
inline double median(std::span<const double> samples) { return quantile(samples, 0.5); }

Spread spread_of(std::span<const double> samples);

// Half the width of the median's 95 % interval, as a share of the median. The interval lies between
// the order statistics of rank n/2 -+ 0.98 sqrt(n) (binomial, normal approximation), so it needs no
// distribution; below 6 samples it is [smallest, largest].
double median_half_width(std::span<const double> samples);

// median(against) / median(impl) with a 95 % percentile interval from kBootstrapDraws resamples of
// the rounds. Paired: a draw takes both samples of a round. Same length, at least 1.
RatioInterval bootstrap_ratio(std::span<const double> impl, std::span<const double> against,
                              std::uint64_t seed);
inline constexpr Index kBootstrapDraws = 2000;

// Largest |median of ten consecutive rounds / median of the first ten - 1|, looked at after every
// ten rounds; 0 below 20 samples.
double drift_of(std::span<const double> samples);

}  // namespace hone::tune
