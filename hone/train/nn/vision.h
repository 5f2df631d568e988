// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone::nn {

struct VisionSpec {
  std::string name = "cnn";  // or mlp, resnet20
  Index width = 0;           // 0 means mlp 256, cnn 32, resnet20 16
  Index layers = 2;          // hidden layers of the mlp
  Index channels = 1, height = 28, image_width = 28, classes = 10;
};
// Fills in the width. Throws Error{InvalidArgument} for an unknown name or an unsuitable size.
VisionSpec resolve(VisionSpec spec);

// A tensor that a model requests while it is built.
struct TensorRequest {
  std::string name;
  std::vector<std::int64_t> sizes;
  double value = 0;  // initial value of a new model, unless std > 0 selects normal(0, std)
  double std = 0;
  torch::ScalarType type = torch::kFloat;
};
using TensorSource = std::function<torch::Tensor(const TensorRequest&)>;
// The tensors of a new model, drawn from Philox(seed) with one stream per random tensor.
TensorSource new_tensors(std::uint64_t seed);

// A convolution without bias and the normalization of its output: over groups of channels of each
// image or, if groups is 0, over each channel of the batch. Its parameters are registered in the
// model under the given names.
struct NormedConv {
  torch::Tensor weight, scale, shift;
  torch::Tensor running_mean, running_var, batches;  // of batch normalization
  Index stride = 1, groups = 0;

  torch::Tensor forward(const torch::Tensor& x, bool training) const;
};

// Classifiers of small images.
//  mlp       layers x (linear, ReLU), linear
//  cnn       (3 x 3 convolution, GroupNorm, ReLU, 2 x 2 maximum) until the side is at most 8, at
//            width, 2 width, 4 width, 4 width, … channels; linear. No image sees another.
//  resnet20  He et al. (2015) for CIFAR-10: three stages of three blocks at width, 2 width, 4 width
//            channels with BatchNorm, shortcuts without parameters (option A), mean, linear. Names
//            of parameters and buffers as in akamaster/pytorch_resnet_cifar10.
// Convolutions and linear layers are initialized as normal(0, √(2 / inputs)), the last one as
// normal(0, √(1 / inputs)), biases as 0.
class VisionNetImpl : public torch::nn::Module {
 public:
  VisionNetImpl(const VisionSpec& spec, std::uint64_t seed)
      : VisionNetImpl(spec, new_tensors(seed)) {}
  VisionNetImpl(const VisionSpec& spec, TensorSource source);

  // images [batch, channels, height, width] -> logits [batch, classes].
  torch::Tensor forward(const torch::Tensor& images) const;
  const VisionSpec& spec() const { return spec_; }
  // Whether, in training, an image's output depends on the others in its batch.
  bool mixes_batch() const { return spec_.name == "resnet20"; }

 private:
  struct Linear {
    torch::Tensor weight, bias;
  };
  NormedConv add_conv(const std::string& conv, const std::string& norm, Index in, Index out,
                      Index stride, Index groups);
  Linear add_linear(const std::string& name, Index in, Index out, double gain);
  void build_mlp();
  void build_cnn();
  void build_resnet();
  // The module that owns "layer1.0.conv1", and the last part of the name.
  std::pair<torch::nn::Module*, std::string> owner_of(const std::string& name);
  torch::Tensor add_parameter(const TensorRequest& request);
  torch::Tensor add_buffer(const TensorRequest& request);
  torch::Tensor forward_resnet(const torch::Tensor& images) const;

  VisionSpec spec_;
  TensorSource source_;  // only used during construction
  std::vector<NormedConv> convs_;
  std::vector<Linear> linears_;
};
TORCH_MODULE(VisionNet);

}  // namespace hone::nn
