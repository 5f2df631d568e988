// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "hone/core/index.h"

namespace hone::compress {

struct BootstrapOptions {
  Index block = 512;  // number of consecutive samples drawn together, which keeps their correlation
  Index draws = 2000;
  std::uint64_t seed = 1;
  double coverage = 0.95;
};

struct MeanInterval {
  double mean = 0, low = 0, high = 0;
  Index blocks = 0, block = 0;  // their number, and the samples in each
};

// The mean of a correlated series with its percentile block-bootstrap interval, widened by
// sqrt(B/(B-1)) · t/z for B blocks. A series shorter than eight blocks is divided into eight
// shorter ones. For fewer than two samples, low = high = mean.
MeanInterval bootstrap_mean(std::span<const double> samples, const BootstrapOptions& options = {});

// The quantile q in [0, 1] by linear interpolation between order statistics. Sorts `samples`.
double take_quantile(std::span<double> samples, double q);

}  // namespace hone::compress
