// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"

namespace hone::loss {

struct DistillationOptions {
  double temperature = 3;      // T, above 0
  double alpha = 0.7;          // the share of the soft loss, 0 to 1
  double label_smoothing = 0;  // of the hard loss
};
// Throws Error{InvalidArgument} that names the option.
void check_options(const DistillationOptions& options);

// Sums over rows, scalars with gradients for the student's logits.
struct DistillationSums {
  torch::Tensor total{};  // α · soft + (1 − α) · hard
  torch::Tensor soft{};   // T² · Σ KL(softmax(teacher / T) ‖ softmax(student / T)) in nats
  torch::Tensor hard{};   // Σ −log softmax(student)[target]
  Index rows = 0;         // the rows that count
};

// The loss of a student that learns from the logits of a teacher and from targets (Hinton et al.,
// "Distilling the knowledge in a neural network", 2015). Logits [rows, classes], of which the
// teacher's carry no gradient; targets int64 [rows]. Rows with a target below 0 count nowhere. If
// targets are undefined, every row counts and total is the soft loss. With α = 0 the teacher may be
// undefined; then the soft loss is.
//
// Throws Error{InvalidArgument} for other shapes and types.
DistillationSums distillation_sums(const torch::Tensor& student, const torch::Tensor& teacher,
                                   const torch::Tensor& targets,
                                   const DistillationOptions& options = {});

}  // namespace hone::loss
