// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/gradient_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/train/interop.h"

namespace hone::amp {
namespace {

constexpr std::string_view kMeasure = "measure_gradients", kRecommend = "recommend_scale";
constexpr double kLargestHalf = 65504;

float check_factor(const char* what, double value) {
  const auto held = static_cast<float>(value);
  HONE_CHECK(std::isfinite(held) && held > 0, kMeasure, concat("a positive fp32 number as ", what),
             value);
  return held;
}

// Order does not matter to the statistics, so any dense layout is read in memory order.
torch::Tensor readable(const torch::Tensor& gradient) {
  if (gradient.layout() != at::kStrided) {
    fail_unsupported(kMeasure, "dense gradients", concat("layout ", c10::str(gradient.layout())));
  }
  const torch::Tensor plain = gradient.detach().to(at::kCPU, at::kFloat);
  return plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
}

struct Piece {
  const float* data = nullptr;
  Index length = 0;
};

Index nonzero_count(const GradientStatistics& statistics) {
  return std::accumulate(statistics.bins.begin(), statistics.bins.end(), Index{0});
}

double underflowing(const GradientStatistics& statistics, int exponent) {
  // |g| ≤ 2^(-25 - exponent): bins that end there or below.
  const int count = -25 - exponent - GradientStatistics::kFirstExponent + 1;
  const auto end = statistics.bins.begin() + std::clamp<int>(count, 0, GradientStatistics::kBins);
  return static_cast<double>(std::accumulate(statistics.bins.begin(), end, Index{0}));
}

// Exact: an fp32 number times a power of two.
bool fits(float largest, int exponent) {
  return std::ldexp(double{largest}, exponent) <= kLargestHalf;
}

int largest_exponent(float largest, int headroom_bits) {
  int exponent = std::ilogb(kLargestHalf) - std::ilogb(largest) - headroom_bits;
  if (!fits(largest, exponent + headroom_bits)) --exponent;
  return std::clamp(exponent, -126, 126);
}

}  // namespace

GradientStatistics measure_gradients(std::span<const torch::Tensor> gradients, double scale,
                                     double factor) {
  const float by = check_factor("factor", factor), to = check_factor("scale", scale);
  std::vector<torch::Tensor> alive;
  std::vector<Piece> pieces;
  for (const torch::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    alive.push_back(readable(gradient));
    const auto* data = alive.back().const_data_ptr<float>();
    for (Index i = 0; i < alive.back().numel(); i += kernels::kChunkElements) {
      pieces.push_back({data + i, std::min(kernels::kChunkElements, alive.back().numel() - i)});
    }
  }
  // Groups of pieces, added in order: the same sums for any number of threads.
  constexpr Index kGrain = 16;
  const auto count = static_cast<Index>(pieces.size());
  std::vector<GradientStatistics> parts(static_cast<std::size_t>(ceil_div(count, kGrain)));
  libtorch_executor().parallel_for(count, kGrain, [&](Index begin, Index end, int) {
    GradientStatistics& part = parts[static_cast<std::size_t>(begin / kGrain)];
    for (Index i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<std::size_t>(i)];
      kernels::measure_f16(piece.data, piece.length, by, to, part);
    }
  });
  GradientStatistics total;
  for (const GradientStatistics& part : parts) total += part;
  return total;
}

GradientStatistics measure_gradients(torch::optim::Optimizer& optimizer, double scale,
                                     double factor) {
  std::vector<torch::Tensor> gradients;
  for (auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& param : group.params()) gradients.push_back(param.grad());
  }
  return measure_gradients(gradients, scale, factor);
}

double underflow_fraction(const GradientStatistics& statistics, int exponent) {
  const Index nonzero = nonzero_count(statistics);
  return nonzero == 0 ? 0 : underflowing(statistics, exponent) / static_cast<double>(nonzero);
}

ScaleAdvice recommend_scale(const GradientStatistics& statistics, double current_scale,
                            int headroom_bits) {
  HONE_CHECK(statistics.nonfinite == 0, kRecommend, "finite gradients",
             concat(statistics.nonfinite, " that are inf or NaN"));
  HONE_CHECK(headroom_bits >= 0 && headroom_bits <= 30, kRecommend, "headroom_bits from 0 to 30",
             headroom_bits);
  if (statistics.largest == 0) return {current_scale, {}};
  const int best = largest_exponent(statistics.largest, headroom_bits);
  ScaleAdvice advice{std::ldexp(1.0, best), {}};
  for (int exponent = std::min(0, best); exponent <= std::max(24, best); ++exponent) {
    advice.curve.push_back({std::ldexp(1.0, exponent), underflow_fraction(statistics, exponent),
                            fits(statistics.largest, exponent)});
  }
  return advice;
}

}  // namespace hone::amp
