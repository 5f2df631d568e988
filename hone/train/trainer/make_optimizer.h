// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <string_view>

#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/optim/optim_config.h"

namespace hone::trainer {

// The configuration with the values of its preset, TAMOptions', in place of the keys that were not
// given; it has no preset any more. `module` says how large the model is.
optim::OptimConfig apply_preset(optim::OptimConfig optim, const ConfigKeys& given,
                                const torch::nn::Module& module);

// The optimizer of a configuration without a preset (apply_preset) in which no value is left at
// auto (fill_defaults), over a module's parameters in two groups: matrices with weight decay,
// vectors without. With state in 8 bits the parameters named in `embeddings` are a third group,
// whose state is fp32.
std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(
    const optim::OptimConfig& optim, double peak, const torch::nn::Module& module,
    std::span<const std::string_view> embeddings = {});

}  // namespace hone::trainer
