// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hone/core/index.h"
#include "hone/train/nn/layers.h"

namespace hone::nn {

struct VisionSpec {
  std::string name = "cnn";  // one of vision_models()
  Index width = 0;           // 0 means mlp 256, cnn 32, ResNets for CIFAR-10 16, others 64
  Index layers = 2;          // hidden layers of the mlp
  Index channels = 1, height = 28, image_width = 28;
  Index classes = 10;  // 0: a ResNet without its linear layer
};
std::span<const std::string_view> vision_models();
// The least side of an image that a model takes.
Index least_image_side(std::string_view name);
// The most pixels of an image, so that its largest map has at most kMaxMapValues, 256 MiB in fp32:
// memory must not grow without bound with a side that a file names. No limit for mlp, whose
// weights grow with the image. Takes a known name and a width above 0.
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
  // From now on, blocks 0, k, 2k, … keep only their inputs for the backward pass and are computed
  // again there (nn::recompute); 0: none. Outputs, gradients and buffers keep their bits; where a
  // batch passes in several calls before the backward pass, sums of their gradients may be added in
  // another order. Returns false if that is already so or the model has no blocks.
  virtual bool set_recompute_every(Index /*k*/) { return false; }

 protected:
  NormMode norm_mode() const { return is_training() ? NormMode::Train : NormMode::Evaluate; }
  // Takes a spec that resolve() has returned.
  explicit VisionNetImpl(VisionSpec spec) : spec_(std::move(spec)) {}

 private:
  virtual VisionOutputs outputs_of(const torch::Tensor& images) const = 0;

  VisionSpec spec_;
};
TORCH_MODULE(VisionNet);

// Gives the weights of convolutions the layout in which channels are the fastest dimension, which
// convolutions on such images are faster with on some devices. Their optimizer is made afterwards,
// so that its state has it too.
void use_channels_last(torch::nn::Module& module);

// Builds one of
//  mlp  layers x (linear, ReLU), linear
//  cnn  (3 x 3 convolution, GroupNorm, ReLU, 2 x 2 maximum) until the side is at most 8, at width,
//       2 width, 4 width, 4 width, … channels; linear. No image sees another.
//  the ResNets of hone/train/nn/resnet.h.
VisionNet make_vision_net(const VisionSpec& spec, TensorSource source);
inline VisionNet make_vision_net(const VisionSpec& spec, std::uint64_t seed) {
  return make_vision_net(spec, new_tensors(seed));
}

}  // namespace hone::nn
