// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/nn/layers.h"

namespace hone::nn {

struct VisionSpec {
  std::string name = "cnn";  // one of vision_models()
  Index width = 0;           // 0 means mlp 256, cnn 32, ResNets for CIFAR-10 16, others 64
  Index layers = 2;          // hidden layers of the mlp
  Index channels = 1, height = 28, image_width = 28;
  Index classes = 10;  // 0: a ResNet without its linear layer
  // Channels between the convolutions of a ResNet's blocks, in the order of the model: one number
  // for each block, two for a bottleneck. Empty: as published. prune_channels() makes smaller ones.
  std::vector<Index> inner_widths = {};
};
std::span<const std::string_view> vision_models();
// Smallest side of an image that the model accepts.
Index least_image_side(std::string_view name);
// Maximum number of pixels of an image, such that its largest map has at most kMaxMapValues values
// (256 MiB in fp32). This bounds memory when a file names the size of images. There is no limit for
// mlp, whose weights grow with the image. The name must be known and the width above 0.
inline constexpr Index kMaxMapValues = Index{1} << 26;
Index most_image_pixels(const VisionSpec& spec);
// Fills in the width. Throws Error{InvalidArgument} for an unknown name or an unsuitable size.
VisionSpec resolve(VisionSpec spec);

struct VisionOutputs {
  torch::Tensor logits;    // [batch, classes]
  torch::Tensor features;  // [batch, channels], the mean of a ResNet's last map; else undefined
};

// A classifier of images of one size. Convolutions and linear layers are initialized as normal(0,
// √(2 / inputs)), the last one as normal(0, √(1 / inputs)), biases as 0.
class VisionNetImpl : public torch::nn::Module {
 public:
  // images [batch, channels, height, width] -> logits [batch, classes].
  torch::Tensor forward(const torch::Tensor& images) const {
    return forward_with_features(images).logits;
  }
  VisionOutputs forward_with_features(const torch::Tensor& images) const;
  const VisionSpec& spec() const { return spec_; }
  // Whether, in training, an image's output depends on the others in its batch.
  virtual bool mixes_batch() const { return false; }
  // Makes blocks 0, k, 2k, … keep only their inputs for the backward pass and compute the rest
  // again there (nn::recompute). 0 disables it. Outputs, gradients and buffers are bit-identical.
  // If several forward passes precede the backward pass, their gradients may be summed in another
  // order. Returns false if the setting is the same as before or the model has no blocks.
  virtual bool set_recompute_every(Index /*k*/) { return false; }

 protected:
  NormMode norm_mode() const { return is_training() ? NormMode::Train : NormMode::Evaluate; }
  // The spec must come from resolve().
  explicit VisionNetImpl(VisionSpec spec) : spec_(std::move(spec)) {}

 private:
  virtual VisionOutputs outputs_of(const torch::Tensor& images) const = 0;

  VisionSpec spec_;
};
TORCH_MODULE(VisionNet);

// Converts the weights of convolutions to the channels-last layout, which is faster for
// channels-last images on some devices. Create the optimizer afterwards, so that its state has the
// same layout.
void use_channels_last(torch::nn::Module& module);

// Builds one of
//  mlp  layers x (linear, ReLU), linear
//  cnn  (3 x 3 convolution, GroupNorm, ReLU, 2 x 2 max pooling) until the side is at most 8, at
//       width, 2 width, 4 width, 4 width, … channels; linear. Images of a batch are independent.
//  the ResNets of hone/train/nn/resnet.h.
VisionNet make_vision_net(const VisionSpec& spec, TensorSource source);
inline VisionNet make_vision_net(const VisionSpec& spec, std::uint64_t seed) {
  return make_vision_net(spec, new_tensors(seed));
}

}  // namespace hone::nn
