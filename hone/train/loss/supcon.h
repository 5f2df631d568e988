// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

namespace hone::loss {

struct SupConOptions {
  double temperature = 0.1;  // at least 1e-20, so that the gradient fits in fp32
};

// The supervised contrastive loss, in nats (Khosla et al., Supervised Contrastive Learning, 2020,
// equation 2, L_out). Let z be the rows of features [rows, dim] divided by their norms (at least
// 1e-12), for all views of a batch, and t the temperature. P(i) is the set of other rows with the
// class of row i, according to targets int64 [rows].
//   loss = mean over rows i with P(i) not empty of
//          -1/|P(i)| Σ_{p in P(i)} ln(exp(z_i·z_p / t) / Σ_{a ≠ i} exp(z_i·z_a / t)).
// If no class has two rows, the loss and its gradient are 0. Computes in fp32, and in fp64 for fp64
// features, also inside an autocast scope (call backward outside of it). Needs memory for a few
// [rows, rows] matrices. Does not wait for a CUDA device. Throws Error{InvalidArgument} for other
// shapes and types, no rows, and a temperature out of range.
torch::Tensor supervised_contrastive(const torch::Tensor& features, const torch::Tensor& targets,
                                     const SupConOptions& options = {});

}  // namespace hone::loss
