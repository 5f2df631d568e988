// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/nn/epilogue.h"
#include "hone/train/surgery/fusion_site.h"
#include "hone/train/surgery/slot.h"

namespace hone::nn {

// A tensor that a model requests while it is built.
struct TensorRequest {
  std::string name;
  std::vector<std::int64_t> sizes;
  double value = 0;  // initial value if std is 0; otherwise normal(0, std)
  double std = 0;
  torch::ScalarType type = torch::kFloat;
};
using TensorSource = std::function<torch::Tensor(const TensorRequest&)>;
// The tensors of a new model, drawn from Philox(seed) with one stream per random tensor.
TensorSource new_tensors(std::uint64_t seed);

struct ConvShape {
  Index in = 0, out = 0;  // channels
  Index kernel = 3, stride = 1;
  Index groups = 0;  // groups of the normalization; 0: BatchNorm
};

// The statistics that batch normalization uses and updates.
enum class NormMode {
  Evaluate,   // the running statistics
  Train,      // batch statistics, which also update the running ones
  Recompute,  // as Train, to the same bits, without an update of the running ones
};

// A square convolution without bias, padded by half of its kernel, and the normalization of its
// output: over groups of channels of each image or, if groups is 0, over each channel of the batch.
class FoldedNorm;
struct NormedConv {
  std::string path = {}, norm_path = {};  // in the model: "layer1.0.conv1", "layer1.0.bn1"
  Slot conv{nullptr};                     // of a torch::nn::Conv2d
  torch::Tensor scale = {}, shift = {};
  torch::Tensor running_mean = {}, running_var = {}, batches = {};  // of batch normalization
  Index groups = 0;

  // If set, evaluation without gradients uses a convolution with the normalization folded into its
  // weight.
  std::shared_ptr<FoldedNorm> folded = {};

  Index channels() const { return scale.size(0); }  // of the output
  // activation(normalization + residual); the residual may be undefined.
  torch::Tensor forward(const torch::Tensor& x, NormMode mode,
                        Activation activation = Activation::None,
                        const torch::Tensor& residual = {}) const;
  torch::Tensor normalize(const torch::Tensor& y, NormMode mode) const;
};

// The site of a normalized convolution, an activation and, if `has_residual`, a sum before it. The
// functions are valid as long as `conv`. `prefix` is the path of the model with a dot, or empty.
FusionSite fusion_site(NormedConv& conv, const std::string& prefix, Activation activation,
                       bool has_residual);

struct LinearLayer {
  Slot linear{nullptr};  // of a torch::nn::Linear

  torch::Tensor forward(const torch::Tensor& x) const;
};

// Builds layers from a source of tensors, and registers their parameters and buffers in a module
// under the given names ("layer1.0.conv1"). Convolutions and linear layers are inside Slots. Their
// weights are initialized as normal(0, √(gain / inputs)), where convolutions have a gain of 2, and
// biases as 0. Does not use LibTorch's random generators.
class LayerBuilder {
 public:
  LayerBuilder(torch::nn::Module& module, TensorSource source)
      : module_(module), source_(std::move(source)) {}

  NormedConv normed_conv(const std::string& conv, const std::string& norm, const ConvShape& shape);
  LinearLayer linear(const std::string& name, Index in, Index out, double gain);

 private:
  // The module that owns "layer1.0.conv1", and the last part of the name.
  std::pair<torch::nn::Module*, std::string> owner_of(const std::string& name);
  Slot add_slot(const std::string& name, torch::nn::AnyModule layer);
  torch::Tensor parameter(const TensorRequest& request);
  torch::Tensor buffer(const TensorRequest& request);

  torch::nn::Module& module_;
  TensorSource source_;
};

}  // namespace hone::nn
