// SPDX-License-Identifier: Apache-2.0
#include "hone/core/batch/cost_model.h"

#include <cmath>

namespace hone {
namespace {

const double kForget = std::exp2(-1.0 / 16);
// The features are scaled so that a typical step has values near 1.
constexpr std::array<double, 4> kScale{1, 1.0 / 8, 1.0 / 256, 1.0 / 65536};
constexpr std::array<double, 4> kPrior{0, 8e-3, 256e-3, 0};  // 1 ms per row
constexpr double kPriorWeight = 1e-6;

}  // namespace

CostModel::CostModel() : coefficients_(kPrior) {}

CostModel::Vector CostModel::features(const StepShape& shape) {
  return {kScale[0], kScale[1] * static_cast<double>(shape.decode_rows),
          kScale[2] * static_cast<double>(shape.prefill_tokens),
          kScale[3] * static_cast<double>(shape.kv_tokens)};
}

double CostModel::predict(const StepShape& shape) const {
  const Vector x = features(shape);
  double seconds = 0;
  for (std::size_t i = 0; i < kTerms; ++i) seconds += coefficients_[i] * x[i];
  return seconds;
}

void CostModel::observe(const StepShape& shape, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;
  const Vector x = features(shape);
  Sums& sums = shape.prefill_tokens == 0 ? decodes_ : prefills_;
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j < kTerms; ++j) {
      sums.moments[i][j] = kForget * sums.moments[i][j] + x[i] * x[j] / (seconds * seconds);
    }
    sums.targets[i] = kForget * sums.targets[i] + x[i] / seconds;
  }
  fit();
}

// Solves the normal equations by coordinate descent, which keeps every coefficient at 0 or above
// (the problem is convex, so that it converges to the constrained minimum). The last solution is
// the starting point, and one observation moves it little.
void CostModel::fit() {
  constexpr int kSweeps = 50;
  const auto moment = [this](std::size_t i, std::size_t j) {
    return decodes_.moments[i][j] + prefills_.moments[i][j];
  };
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      double rest = decodes_.targets[i] + prefills_.targets[i];
      for (std::size_t j = 0; j < kTerms; ++j) {
        if (j != i) rest -= moment(i, j) * coefficients_[j];
      }
      // The prior counts relative to the moments, so that it only decides what they leave open.
      const double prior = kPriorWeight * (moment(i, i) + 1);
      coefficients_[i] = std::fmax(0, (rest + prior * kPrior[i]) / (moment(i, i) + prior));
    }
  }
}

}  // namespace hone
