// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"
#include "hone/kernels/paco/assignment.h"

namespace hone::paco {

// Matches the parts of an image's second view to those of the first. No gradient flows through.

// Cosine: 1 - cos of two parts. Mahalanobis: their distance under the image's own metric.
enum class MatchMetric { Cosine, Mahalanobis };

// The metric of an epoch, counted from 0: the cosine in the first warmup_epochs, then `metric`.
struct MatchSchedule {
  MatchMetric metric = MatchMetric::Mahalanobis;
  Index warmup_epochs = 3;

  MatchMetric at(Index epoch) const { return epoch < warmup_epochs ? MatchMetric::Cosine : metric; }
};

// Returns 1 - cos of every part of z1 [B, K, d] and every part of z2 in fp64: [B, K, K]. Norms are
// at least 1e-12, so that the cosine of a zero part is 0. Throws Error{InvalidArgument} unless both
// are floating-point tensors of one such shape.
torch::Tensor cosine_costs(const torch::Tensor& z1, const torch::Tensor& z2);

// Returns the view-2 part of each view-1 part, int64 [B, K], for costs [B, K, K] in fp64: the
// permutation of kernels::assign. CUDA tensors are matched on the device without waiting for it if
// the permutation is found by table, otherwise on the host. Throws Error{InvalidArgument} for other
// shapes and types, and like kernels::assign. On the device, NaN costs result in an arbitrary
// permutation instead.
torch::Tensor match_parts(const torch::Tensor& costs, kernels::AssignmentMethod method);

namespace composed {
// Implements match_parts by table, with operators that run on every device. Ties select the first
// permutation in lexicographic order. Supports at most kernels::kMaxTableParts parts.
torch::Tensor match_by_table(const torch::Tensor& costs);
}  // namespace composed

}  // namespace hone::paco
