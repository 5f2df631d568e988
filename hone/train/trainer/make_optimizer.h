// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/optim/optim_config.h"

namespace hone::trainer {

// Sets the keys that were not given to the values of the configuration's preset (see TAMOptions).
// The preset itself stays as a record. `module` provides the size of the model.
optim::OptimConfig apply_preset(optim::OptimConfig optim, const ConfigKeys& given,
                                const torch::nn::Module& module);

// Scales the learning rate of `parameters` by `factor`. With factor 0 they do not change, because
// the rate also multiplies every decay.
struct ScaledRate {
  double factor = 1;
  std::vector<torch::Tensor> parameters = {};
};

// Creates the optimizer of a configuration over the parameters of a module. Call apply_preset() and
// fill_defaults() first: no value may be at "auto". Has two groups: matrices with weight decay, and
// vectors without. With state in 8 bits, the parameters named in `embeddings` are a third group,
// with fp32 state. With a factor other than 1, the matrices and the vectors of `scaled` are two
// more groups at the end. The first group always has the full rate, even if it is empty.
std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(
    const optim::OptimConfig& optim, double peak, const torch::nn::Module& module,
    std::span<const std::string_view> embeddings = {}, const ScaledRate& scaled = {});

}  // namespace hone::trainer
