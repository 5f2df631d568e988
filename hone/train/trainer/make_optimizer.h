// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/trainer/lm_config.h"

namespace hone::trainer {

// The optimiser of a configuration over a module's parameters in two groups: matrices with weight
// decay, vectors without.
std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const LmConfig& config,
                                                            const torch::nn::Module& module);

}  // namespace hone::trainer
