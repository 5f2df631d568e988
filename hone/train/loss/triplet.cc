// SPDX-License-Identifier: Apache-2.0
#include "hone/train/loss/triplet.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"
#include "hone/train/loss/unit_rows.h"

namespace hone::loss {
namespace {

using torch::Tensor;

constexpr std::string_view kTriplet = "batch_hard_triplet";
constexpr std::int64_t kByDifferences = 2;  // of cdist: no products, so that equal rows tie

// For each row, the rows to compare it with, int64 [rows], and whether it is an anchor, bool
// [rows]; if it is not, the former mean nothing.
struct HardestPairs {
  Tensor positive, negative, is_anchor;
};

HardestPairs hardest_pairs(const Tensor& rows, const Tensor& targets) {
  const at::NoGradGuard no_grad;
  const Tensor distance = at::cdist(rows, rows, /*p=*/2, kByDifferences);
  const Tensor positive = positive_pairs(targets), negative = targets.unsqueeze(1).ne(targets);
  // Where values are equal, argmax and argmin take the first.
  return {distance.masked_fill(positive.logical_not(), -1).argmax(1),
          distance.masked_fill(negative.logical_not(), std::numeric_limits<double>::infinity())
              .argmin(1),
          positive.any(1).logical_and(negative.any(1))};
}

// Between rows of the same number, with a gradient of 0 where it is 0.
Tensor distances(const Tensor& a, const Tensor& b) {
  const Tensor squares = (a - b).square().sum(1), together = squares.eq(0);
  return squares.masked_fill(together, 1).sqrt().masked_fill(together, 0);
}

}  // namespace

TripletLoss batch_hard_triplet(const Tensor& features, const Tensor& targets,
                               const TripletOptions& options) {
  check_rows(kTriplet, features, targets);
  HONE_CHECK(std::isfinite(options.margin) && options.margin >= 0, kTriplet,
             "a finite margin of at least 0", options.margin);
  const ExactScope exact;
  const Tensor rows = unit_rows(features);
  const HardestPairs pairs = hardest_pairs(rows, targets);
  const Tensor excess = distances(rows, rows.index_select(0, pairs.positive)) -
                        distances(rows, rows.index_select(0, pairs.negative)) + options.margin;
  const Tensor hinge = excess.relu().masked_fill(pairs.is_anchor.logical_not(), 0);
  const Tensor anchors = pairs.is_anchor.sum().clamp_min(1).to(rows.scalar_type());
  return {hinge.sum() / anchors, hinge.detach().gt(0).sum() / anchors};
}

}  // namespace hone::loss
