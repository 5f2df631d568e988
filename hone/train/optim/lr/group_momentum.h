// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>

namespace hone::optim {

// The momentum of a group's options, or β₁ of its betas; nothing for a rule that has neither.
std::optional<double> get_momentum(const torch::optim::OptimizerOptions& options);
// Nothing happens for a rule that has neither.
void set_momentum(torch::optim::OptimizerOptions& options, double momentum);

}  // namespace hone::optim
