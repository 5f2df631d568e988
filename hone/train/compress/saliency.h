// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/tensor_file.h"

namespace hone::nn {

// Σ |w · g| in f64 for each of these weights of a model, over the gradients g of the losses of
// batches 0, 1, … The gradients of the model are then as they were. Throws Error{InvalidArgument}
// that names `op` without a loss or a batch, or for a weight of which no loss has a gradient.
std::vector<torch::Tensor> gradient_saliencies(
    std::string_view op, const torch::nn::Module& model, const std::vector<NamedTensor>& weights,
    const std::function<torch::Tensor(Index batch)>& loss, Index batches);

}  // namespace hone::nn
