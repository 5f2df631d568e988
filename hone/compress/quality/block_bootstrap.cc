// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/quality/block_bootstrap.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::compress {
namespace {

constexpr Index kFewestBlocks = 8;

struct BlockSum {
  double sum = 0;
  double count = 0;
};

std::vector<BlockSum> sum_blocks(std::span<const double> samples, Index size) {
  const auto n = static_cast<Index>(samples.size());
  std::vector<BlockSum> blocks(static_cast<std::size_t>(ceil_div(n, size)));
  for (Index i = 0; i < n; ++i) {
    blocks[i / size].sum += samples[i];
    blocks[i / size].count += 1;
  }
  return blocks;
}

// The quantile of the standard normal distribution by bisection of erfc. Called only a few times
// per card.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

// The factor by which the percentile interval must be widened for this number of blocks, with
// Student's quantile by its expansion in 1/(degrees of freedom) (Abramowitz and Stegun 26.7.5).
double small_sample_factor(double blocks, double coverage) {
  const double z = normal_quantile((1 + coverage) / 2), freedom = blocks - 1;
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  const double t = z + (z3 + z) / (4 * freedom) +
                   (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
                   (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
  return t / z * std::sqrt(blocks / freedom);
}

}  // namespace

double take_quantile(std::span<double> samples, double q) {
  HONE_CHECK(!samples.empty() && q >= 0 && q <= 1, "quantile", "samples and a q in [0, 1]", q);
  std::sort(samples.begin(), samples.end());
  const double place = q * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, samples.size() - 1);
  const double share = place - static_cast<double>(below);
  return share == 0 ? samples[below] : samples[below] + share * (samples[above] - samples[below]);
}

MeanInterval bootstrap_mean(std::span<const double> samples, const BootstrapOptions& options) {
  HONE_REQUIRE(!samples.empty(), "bootstrap", "There is no sample.");
  HONE_CHECK(options.block >= 1 && options.draws >= 1, "bootstrap", "block and draws of at least 1",
             std::min(options.block, options.draws));
  HONE_CHECK(options.coverage > 0 && options.coverage < 1, "bootstrap", "a coverage in (0, 1)",
             options.coverage);
  const Index size =
      std::max<Index>(1, std::min(options.block, std::ssize(samples) / kFewestBlocks));
  const std::vector<BlockSum> blocks = sum_blocks(samples, size);
  double sum = 0;
  for (double sample : samples) sum += sample;
  MeanInterval interval;
  interval.mean = interval.low = interval.high = sum / static_cast<double>(samples.size());
  interval.blocks = std::ssize(blocks);
  interval.block = size;
  if (blocks.size() < 2) return interval;
  PhiloxStream random(options.seed);
  std::vector<double> means(static_cast<std::size_t>(options.draws));
  for (double& mean : means) {
    BlockSum total;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const BlockSum& block = blocks[random.below(static_cast<std::uint32_t>(blocks.size()))];
      total.sum += block.sum;
      total.count += block.count;
    }
    mean = total.sum / total.count;
  }
  const double tail = (1 - options.coverage) / 2;
  const double factor = small_sample_factor(static_cast<double>(blocks.size()), options.coverage);
  interval.low = interval.mean + factor * (take_quantile(means, tail) - interval.mean);
  interval.high = interval.mean + factor * (take_quantile(means, 1 - tail) - interval.mean);
  return interval;
}

}  // namespace hone::compress
