// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

namespace hone::loss {

struct TripletOptions {
  double margin = 0.2;  // at least 0; distances of unit rows are at most 2
};

struct TripletLoss {
  torch::Tensor loss;          // scalar, differentiable
  torch::Tensor active_share;  // scalar without gradient: share of anchors with an active hinge
};

// The triplet loss with the hardest pairs of the batch (Hermans et al., In Defense of the Triplet
// Loss for Person Re-Identification, 2017). Let d be the Euclidean distance of the rows of features
// [rows, dim] divided by their norms (at least 1e-12).
//   loss = mean over anchors a of max(0, margin + max_p d(a, p) - min_n d(a, n)),
// p over the other rows of the class of a according to targets int64 [rows], n over the rows of
// other classes. A row without a p or an n is not an anchor. Ties select the lowest row. Selection
// has no gradient, and a distance of 0 has gradient 0. Without anchors, loss, gradient and share
// are 0.
//
// Computes in fp32, and in fp64 for fp64 features, also inside an autocast scope. Does not wait for
// a CUDA device. Takes time for rows² dim differences, because matrix products would break ties.
// Throws Error{InvalidArgument} for other shapes and types, no rows, and a margin that is negative
// or not finite.
TripletLoss batch_hard_triplet(const torch::Tensor& features, const torch::Tensor& targets,
                               const TripletOptions& options = {});

}  // namespace hone::loss
