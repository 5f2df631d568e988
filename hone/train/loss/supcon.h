// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

namespace hone::loss {

struct SupConOptions {
  double temperature = 0.1;  // at least 1e-20, so that fp32 holds the gradient
};

// The supervised contrastive loss, in nats. With z the rows of features [rows, dim] divided by
// their norms (at least 1e-12), of all views of a batch, t the temperature, and P(i) the other rows
// of the class of row i by targets int64 [rows],
//   loss = mean over rows i with P(i) not empty of
//          -1/|P(i)| Σ_{p in P(i)} ln(exp(z_i·z_p / t) / Σ_{a ≠ i} exp(z_i·z_a / t)).
// If no class has two rows, it is 0 and so is its gradient. Computed in fp32, for fp64 features in
// fp64, also inside an autocast scope (call backward outside of it), with memory for a few
// [rows, rows] matrices; does not wait for a CUDA device. Throws Error{InvalidArgument} for other
// shapes and types, no rows, and a temperature out of range.
// Khosla et al., Supervised Contrastive Learning, 2020, equation 2 (L_out).
torch::Tensor supervised_contrastive(const torch::Tensor& features, const torch::Tensor& targets,
                                     const SupConOptions& options = {});

}  // namespace hone::loss
