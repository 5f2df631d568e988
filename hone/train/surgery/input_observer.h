// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <span>
#include <string>

namespace hone::nn {

// Calls `run`, in which the model computes something, and gives every input of the layers with
// these paths to `observe`, in the order of the calls. The layers must be replaceable
// (is_replaceable()); others are left out. The model is then as it was, also if `run` throws.
void observe_inputs(
    torch::nn::Module& model, std::span<const std::string> paths, const std::function<void()>& run,
    const std::function<void(const std::string& path, const torch::Tensor& x)>& observe);

}  // namespace hone::nn
