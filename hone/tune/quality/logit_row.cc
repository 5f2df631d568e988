// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/quality/logit_row.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"

namespace hone::tune {
namespace {

constexpr std::string_view kOp = "quality";

// The id of the highest logit, the lowest id on ties. NaN never compares greater; the sum detects
// it.
Index find_top(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

void check_row(std::span<const float> logits, Index target) {
  const auto size = static_cast<Index>(logits.size());
  HONE_CHECK(target >= 0 && target < size, kOp, concat("a target id below ", size), target);
}

double finish_log_sum(double top, double sum) {
  const double log_sum = top + std::log(sum);
  HONE_CHECK(std::isfinite(log_sum), kOp, "finite logits", log_sum);
  return log_sum;
}

}  // namespace

TokenScore score_token(std::span<const float> logits, Index target) {
  check_row(logits, target);
  TokenScore score;
  score.top = find_top(logits);
  const double top = logits[score.top];
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - top);
  score.log_probability = logits[target] - finish_log_sum(top, sum);
  return score;
}

// KL = sum_i p_i (b_i - m_i) - (lse(b) - lse(m)) with p = softmax(b): one pass, and exactly 0 for
// equal rows.
PairScore score_pair(std::span<const float> logits, std::span<const float> baseline, Index target) {
  check_row(logits, target);
  HONE_CHECK(logits.size() == baseline.size(), kOp, concat(logits.size(), " baseline logits"),
             baseline.size());
  PairScore score;
  score.model.top = find_top(logits);
  score.baseline.top = find_top(baseline);
  const double model_top = logits[score.model.top], base_top = baseline[score.baseline.top];
  double model_sum = 0, base_sum = 0, difference = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double model = logits[i], base = baseline[i];
    const double weight = std::exp(base - base_top);
    model_sum += std::exp(model - model_top);
    base_sum += weight;
    difference += weight > 0 ? weight * (base - model) : 0;
  }
  const double model_log_sum = finish_log_sum(model_top, model_sum);
  const double base_log_sum = finish_log_sum(base_top, base_sum);
  score.model.log_probability = logits[target] - model_log_sum;
  score.baseline.log_probability = baseline[target] - base_log_sum;
  score.kl = std::max(0.0, difference / base_sum - (base_log_sum - model_log_sum));
  return score;
}

}  // namespace hone::tune
