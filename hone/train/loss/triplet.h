// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

namespace hone::loss {

struct TripletOptions {
  double margin = 0.2;  // in units of the distance of unit rows, which is at most 2; at least 0
};

struct TripletLoss {
  torch::Tensor loss;          // scalar, differentiable
  torch::Tensor active_share;  // scalar without gradient: share of the anchors with a hinge above 0
};

// The triplet loss with the hardest pairs of the batch. With d the Euclidean distance of the rows
// of features [rows, dim] divided by their norms (at least 1e-12),
//   loss = mean over anchors a of max(0, margin + max_p d(a, p) - min_n d(a, n)),
// p over the other rows of the class of a by targets int64 [rows], n over the rows of other
// classes; rows that lack either are no anchors. Of equally far rows, the lowest is taken.
// Selection has no gradient; that of a distance of 0 is 0. Without anchors, loss, gradient and
// share are 0. Computed in fp32, for fp64 features in fp64, also inside an autocast scope; does
// not wait for a CUDA device. Takes the time of rows² dim differences: matrix products would not
// keep ties. Throws Error{InvalidArgument} for other shapes and types, no rows, and a margin that
// is negative or not finite. Hermans et al., In Defense of the Triplet Loss for Person
// Re-Identification, 2017.
TripletLoss batch_hard_triplet(const torch::Tensor& features, const torch::Tensor& targets,
                               const TripletOptions& options = {});

}  // namespace hone::loss
