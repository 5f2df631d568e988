// SPDX-License-Identifier: Apache-2.0
#include "hone/train/loss/supcon.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"
#include "hone/train/loss/unit_rows.h"

namespace hone::loss {
namespace {

using torch::Tensor;

constexpr std::string_view kSupCon = "supervised_contrastive";
constexpr double kLeastTemperature = 1e-20;
// What a row is similar to itself: no share of a softmax. (A row of -∞ alone would give NaN.)
constexpr double kNoSimilarity = std::numeric_limits<float>::lowest();

}  // namespace

Tensor supervised_contrastive(const Tensor& features, const Tensor& targets,
                              const SupConOptions& options) {
  check_rows(kSupCon, features, targets);
  HONE_CHECK(std::isfinite(options.temperature) && options.temperature >= kLeastTemperature,
             kSupCon, concat("a finite temperature of at least ", kLeastTemperature),
             options.temperature);
  const ExactScope exact;
  const Tensor rows = unit_rows(features), positive = positive_pairs(targets);
  const Tensor self = at::eye(rows.size(0), positive.options());
  const Tensor similarity = at::mm(rows, rows.t()) / options.temperature;
  const Tensor log_share = similarity.masked_fill(self, kNoSimilarity).log_softmax(1);
  const Tensor positives = positive.sum(1), anchors = positives.gt(0).sum();
  const Tensor each =
      log_share.masked_fill(positive.logical_not(), 0).sum(1) / positives.clamp_min(1);
  return -each.sum() / anchors.clamp_min(1);
}

}  // namespace hone::loss
