// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hone/train/nn/layers.h"
#include "hone/train/nn/vision.h"

namespace hone::nn {

struct ResNetLayout {
  std::string_view name;
  Index width = 0;                   // channels of the stem
  bool bottleneck = false;           // blocks of 1 x 1, 3 x 3, 1 x 1 instead of two 3 x 3
  std::array<Index, 4> blocks = {};  // per stage; a network for CIFAR has three stages

  bool is_for_cifar() const { return blocks.back() == 0; }
};
// All layouts. find_resnet() returns null for an unknown name.
std::span<const ResNetLayout> resnets();
const ResNetLayout* find_resnet(std::string_view name);

// The channels between the convolutions of all blocks as published, for a resolved spec.
std::vector<Index> published_inner_widths(const VisionSpec& spec);
// Throws Error{InvalidArgument} unless inner_widths is empty or has a number from 1 to the
// published one for each of them.
void check_inner_widths(const VisionSpec& spec);

// He et al., "Deep residual learning for image recognition" (2015), with BatchNorm. Stage s has
// width · 2^s channels (bottleneck: four times as many). Every stage but the first halves the map,
// rounding up.
//  resnet18, resnet34, resnet50  for ImageNet: 7 x 7 convolution of stride 2, 3 x 3 max pooling of
//      stride 2, four stages, mean, linear "fc". Shortcuts that change the shape are 1 x 1
//      convolutions ("downsample"). In a bottleneck, the 3 x 3 convolution has the stride. Names,
//      shapes and order of parameters and buffers match torchvision and timm.
//  resnet20, resnet32, resnet44, resnet56  for CIFAR-10: 3 x 3 convolution, three stages, mean,
//      linear "linear". Shortcuts have no parameters: they take every second pixel and add channels
//      of zeros (option A). Names as in akamaster/pytorch_resnet_cifar10.
class ResNetImpl final : public VisionNetImpl, public Fusible {
 public:
  enum class Stage { Penultimate, Last };

  // A spec without classes has no linear layer; forward() then returns the mean [batch, channels].
  ResNetImpl(const VisionSpec& spec, TensorSource source);
  ResNetImpl(const VisionSpec& spec, std::uint64_t seed) : ResNetImpl(spec, new_tensors(seed)) {}

  // The map of a stage before the mean, [batch, feature_channels(stage), rows, columns], for images
  // of any size. Throws Error{InvalidArgument} for another number of channels.
  torch::Tensor forward_features(const torch::Tensor& images, Stage stage = Stage::Last) const;
  // Computes both maps in one pass.
  struct Maps {
    torch::Tensor penultimate, last;
  };
  Maps forward_maps(const torch::Tensor& images) const;
  // Returns the logits of means over the last map [batch, feature_channels()], or the means if
  // there are no classes.
  torch::Tensor classify(const torch::Tensor& means) const;
  Index feature_channels(Stage stage = Stage::Last) const;
  bool mixes_batch() const override { return true; }
  // A recomputed block updates its running statistics only once.
  bool set_recompute_every(Index k) override;
  // Each convolution with its normalization, the ReLU behind it and the sum with the shortcut.
  std::vector<FusionSite> fusion_sites(const std::string& path) override;

 private:
  struct Block {
    std::vector<NormedConv> convs;
    std::optional<NormedConv> downsample;
  };

  // `widths` are those between the convolutions of the block.
  Block build_block(LayerBuilder& build, Index stage, Index index, Index channels,
                    std::span<const Index> widths) const;
  static torch::Tensor forward_block(const Block& block, const torch::Tensor& x, NormMode mode);
  torch::Tensor run_block(const Block& block, Index number, const torch::Tensor& x) const;
  torch::Tensor run_stage(std::size_t stage, torch::Tensor x) const;
  // forward_stages() computes the map before the last stage, and forward_last_stage() that stage.
  torch::Tensor forward_stages(const torch::Tensor& images) const;
  torch::Tensor forward_last_stage(torch::Tensor x) const;
  VisionOutputs outputs_of(const torch::Tensor& images) const override;

  const ResNetLayout& layout_;
  NormedConv stem_;
  std::vector<std::vector<Block>> stages_;
  std::optional<LinearLayer> head_;
  Index recompute_every_ = 0;
};
TORCH_MODULE(ResNet);

// Rows and columns of the map of a stage, for images of the spec's size.
struct MapCells {
  Index rows = 0, columns = 0;
};
MapCells map_cells(const VisionSpec& spec, ResNetImpl::Stage stage);

}  // namespace hone::nn
