// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "hone/core/index.h"

namespace hone::tune {

struct BootstrapOptions {
  Index block =
      512;  // consecutive samples that are drawn together, so that their correlation stays
  Index draws = 2000;
  std::uint64_t seed = 1;
  double coverage = 0.95;
};

struct MeanInterval {
  double mean = 0, low = 0, high = 0;
  Index blocks = 0;
};

// Mean of a correlated series with its percentile block-bootstrap interval, widened by
// sqrt(B/(B-1)) · t/z for the B blocks there are. A series shorter than eight blocks is cut into
// eight shorter ones; fewer than two samples give low = high = mean.
MeanInterval bootstrap_mean(std::span<const double> samples, const BootstrapOptions& options = {});

// Quantile q in [0, 1] by linear interpolation between order statistics; sorts `samples`.
double take_quantile(std::span<double> samples, double q);

}  // namespace hone::tune
