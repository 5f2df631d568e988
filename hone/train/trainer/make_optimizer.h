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

// Gives the keys that were not given the values of the configuration's preset (those of
// TAMOptions); the preset itself stays as a record. `module` provides the model's size.
optim::OptimConfig apply_preset(optim::OptimConfig optim, const ConfigKeys& given,
                                const torch::nn::Module& module);

// The learning rate of `parameters` is `factor` times that of the others. With the factor 0 they
// keep their values: every decay is multiplied by the rate.
struct ScaledRate {
  double factor = 1;
  std::vector<torch::Tensor> parameters = {};
};

// The optimizer of a configuration to which apply_preset() was applied, and in which no value is
// left at auto (fill_defaults), over a module's parameters in two groups: matrices with weight
// decay, vectors without. With state in 8 bits the parameters named in `embeddings` are a third
// group, whose state is fp32. With a factor other than 1, the matrices and the vectors of `scaled`
// are two more groups at the end, and the first group has the whole rate even if nothing is left in
// it.
std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(
    const optim::OptimConfig& optim, double peak, const torch::nn::Module& module,
    std::span<const std::string_view> embeddings = {}, const ScaledRate& scaled = {});

}  // namespace hone::trainer
