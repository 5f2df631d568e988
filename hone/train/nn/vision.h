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
  std::string name = "cnn";  // mlp, resnet20
  Index width = 0;           // 0: mlp 256, cnn 32, resnet20 16
  Index layers = 2;          // hidden layers of the mlp
  Index channels = 1, height = 28, image_width = 28, classes = 10;
};
// With width filled in; Error{InvalidArgument} for a name or a size that does not fit.
VisionSpec resolve(VisionSpec spec);

// What a model asks for while it is built.
struct TensorRequest {
  std::string name;
  std::vector<std::int64_t> sizes;
  double value = 0;  // a new model's; with std > 0 drawn from normal(0, std) instead
  double std = 0;
  torch::ScalarType type = torch::kFloat;
};
using TensorSource = std::function<torch::Tensor(const TensorRequest&)>;
// A new model's tensors, from Philox(seed), a stream for each that is drawn.
TensorSource new_tensors(std::uint64_t seed);

// A convolution without bias and what normalizes its output: groups of channels of each image, or
// (groups 0) each channel over the batch. Its parameters lie in the model under the names given.
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
// Convolutions and linear layers begin as normal(0, √(2 / inputs)), the last as normal(0,
// √(1 / inputs)); biases 0.
class VisionNetImpl : public torch::nn::Module {
 public:
  VisionNetImpl(const VisionSpec& spec, std::uint64_t seed)
      : VisionNetImpl(spec, new_tensors(seed)) {}
  VisionNetImpl(const VisionSpec& spec, TensorSource source);

  // images [batch, channels, height, width] -> logits [batch, classes].
  torch::Tensor forward(const torch::Tensor& images) const;
  const VisionSpec& spec() const { return spec_; }
  // Does an image's output depend on the others of its batch, while training?
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
  // The module that owns "layer1.0.conv1", with the last word.
  std::pair<torch::nn::Module*, std::string> owner_of(const std::string& name);
  torch::Tensor add_parameter(const TensorRequest& request);
  torch::Tensor add_buffer(const TensorRequest& request);
  torch::Tensor forward_resnet(const torch::Tensor& images) const;

  VisionSpec spec_;
  TensorSource source_;  // while it is built
  std::vector<NormedConv> convs_;
  std::vector<Linear> linears_;
};
TORCH_MODULE(VisionNet);

}  // namespace hone::nn
