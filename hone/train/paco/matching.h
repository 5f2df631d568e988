// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"
#include "hone/kernels/paco/assignment.h"

namespace hone::paco {

// Which part of an image's second view belongs to which of the first. No gradient flows through.

// Cosine: 1 - cos of two parts. Mahalanobis: their distance under the image's own metric.
enum class MatchMetric { Cosine, Mahalanobis };

// The metric of an epoch, counted from 0: the cosine in the first warmup_epochs, then `metric`.
struct MatchSchedule {
  MatchMetric metric = MatchMetric::Mahalanobis;
  Index warmup_epochs = 3;

  MatchMetric at(Index epoch) const { return epoch < warmup_epochs ? MatchMetric::Cosine : metric; }
};

// 1 - cos of every part of z1 [B, K, d] and every part of z2 in fp64: [B, K, K]. Norms below 1e-12
// count as 1e-12, so that the cosine of a part that is 0 is 0. Throws Error{InvalidArgument} for
// tensors that are not of one such shape, or not of floating point.
torch::Tensor cosine_costs(const torch::Tensor& z1, const torch::Tensor& z2);

// For each image the view-2 part of each view-1 part, int64 [B, K], by costs [B, K, K] in fp64: the
// permutation that kernels::assign gives. CUDA tensors are matched on the device, without waiting
// for it, where the permutation is found by table; otherwise on the host. Throws
// Error{InvalidArgument} for other shapes and types, and as kernels::assign; on the device, costs
// that are NaN give some permutation instead.
torch::Tensor match_parts(const torch::Tensor& costs, kernels::AssignmentMethod method);

namespace composed {
// match_parts by table, by operators that run on every device: of equal totals the permutation that
// is first in lexicographic order. At most kernels::kMaxTableParts parts.
torch::Tensor match_by_table(const torch::Tensor& costs);
}  // namespace composed

}  // namespace hone::paco
