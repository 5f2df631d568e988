// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

#include "hone/train/compress/quantized_linear.h"

namespace hone::nn {

// A layer of a model whose weights could be stored in few bits: linear, convolution, LSTM or GRU.
struct QuantizableLayer {
  struct Weight {
    std::string name;      // in the layer: "weight"
    torch::Tensor matrix;  // [outputs, inputs] in f32 on the CPU
  };
  std::string path, type;     // "layer1.0.conv1", "Conv2d"
  std::string obstacle = {};  // why it cannot be exchanged; empty if it can
  std::vector<Weight> weights = {};
  Index bytes = 0;  // of its weights and biases as they are

  // Computes what the layer makes of an input; empty of an LSTM or a GRU. `fastest` computes the
  // same in the fastest float form, against which the quantized layer is timed.
  std::function<torch::Tensor(const torch::Tensor&)> forward = {}, fastest = {};
  // Returns the rows [rows, inputs] that the layer multiplies by its weight. Empty where that is
  // not a single product: LSTMs, GRUs and convolutions of several groups.
  std::function<torch::Tensor(const torch::Tensor&)> inputs_of = {};
  // Puts a layer with these weights, in the order of `weights`, into the model, and takes it out
  // again. Throws Error{Unsupported} if the place cannot be exchanged.
  std::function<void(std::vector<StoredWeight>)> apply = {};
  std::function<void()> undo = {};
};

// All of a model, in its order. The functions are valid as long as the model.
std::vector<QuantizableLayer> quantizable_layers(torch::nn::Module& model);

// The quantized layers of a model with their paths.
struct QuantizedPlace {
  std::string path;
  QuantizedLayer* layer;
};
std::vector<QuantizedPlace> quantized_layers(torch::nn::Module& model);

}  // namespace hone::nn
