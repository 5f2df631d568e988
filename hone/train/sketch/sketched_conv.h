// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "hone/core/index.h"
#include "hone/train/interop.h"
#include "hone/train/sketch/convert.h"

namespace hone::nn {

using HeightWidth = std::array<Index, 2>;

enum class PaddingMode { Zeros, Reflect, Replicate, Circular };

struct SketchedConv2dOptions {
  Index in_channels = 0, out_channels = 0;
  HeightWidth kernel = {3, 3}, stride = {1, 1}, padding = {1, 1}, dilation = {1, 1};
  Index groups = 1;  // each group is factored separately
  PaddingMode padding_mode = PaddingMode::Zeros;
  Index rank = 96;  // of a group's weight [in_channels / groups * kernel, out_channels / groups]
  Index terms = 6;  // if sketched, rank must be a multiple of 2 * terms
  FactorMode mode = FactorMode::Sketched;
  bool bias = true;
  std::uint64_t seed = 0;

  // Padding that preserves the image size (stride 1, odd kernel): ⌊dilation (K - 1) / 2⌋.
  HeightWidth same_padding() const;
  FactorSize group_size() const {
    return {in_channels / groups * kernel[0] * kernel[1], out_channels / groups, rank};
  }
  SketchRecipe recipe() const { return {seed, terms, rank / (2 * terms)}; }
};

struct SketchedConv2dWeights {
  torch::Tensor first;   // s [groups * rank, in_channels / groups, kernel…]
  torch::Tensor second;  // low-rank: [out_channels, rank, 1, 1]; otherwise undefined
  torch::Tensor bias;    // [out_channels], or undefined
  torch::Tensor signs;   // replaces the seed: pack_signs of u [rank, out_channels]; or undefined
};

// A convolution of [batch, channels, height, width], or of one image without the first dimension.
// It is a convolution to `rank` channels per group, followed by a 1 x 1 convolution:
//
//   h = conv2d(x, s),  y_o = Σ_k m_ok h_k + bias_o
//
// Sketched: m = uᵀ / (2 terms), where u [rank, out] has fixed entries ±1/√low_rank, rank = 2 terms
// low_rank. Parameters: s and bias. The buffer `sketch` contains the recipe of u, or `signs`
// contains its bits. The backward pass needs only x. LowRank: parameters a (for s), b [out, rank,
// 1, 1] (for m) and bias.
class SketchedConv2dImpl : public torch::nn::Cloneable<SketchedConv2dImpl> {
 public:
  // Creates a new layer. Draws weight and bias from uniform(±1/√(in_channels / groups * kernel)),
  // then takes the best s for the signs of a sketched layer, or the SVD. Throws
  // Error{InvalidArgument} for sizes out of range, and for depth-wise convolutions, which factors
  // cannot make cheaper.
  explicit SketchedConv2dImpl(const SketchedConv2dOptions& options);
  // Creates a layer with copies of these weights.
  SketchedConv2dImpl(const SketchedConv2dOptions& options, const SketchedConv2dWeights& weights);

  torch::Tensor forward(const torch::Tensor& x);
  // Like forward() without gradients. Each pass takes at least one image, and so few that memory
  // besides the result stays within `max_bytes`. This memory is a copy of the inputs, and hidden
  // channels and outputs in the layouts of oneDNN and LibTorch.
  torch::Tensor forward_chunked(const torch::Tensor& x, Index max_bytes);

  // Returns the kernel of the layer [out_channels, in_channels / groups, kernel…].
  torch::Tensor effective_weight();
  // u [rank, out_channels] of a sketched layer.
  torch::Tensor fixed_signs() const;

  LayerFacts facts() const;
  const SketchedConv2dOptions& options() const { return options_; }
  const torch::Tensor& first() const { return first_; }
  const torch::Tensor& second() const { return second_; }
  const torch::Tensor& bias() const { return bias_; }
  const torch::Tensor& signs() const { return signs_; }
  // The recipe of a sketched layer's signs. After a load, options() only has it once the layer has
  // run.
  SketchRecipe recipe() const { return SketchRecipe::from_bytes(sketch_); }

  // Conversions also convert the fixed signs, and leave the recipe in bytes.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  void reset() override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  struct Quiet {};
  SketchedConv2dImpl(Quiet, const SketchedConv2dOptions& options,
                     const SketchedConv2dWeights& weights);

  bool is_sketched() const { return options_.mode == FactorMode::Sketched; }
  const torch::Tensor& sign_source() const { return signs_.defined() ? signs_ : sketch_; }
  // m, which a sketched layer rebuilds after conversions and loads.
  const torch::Tensor& mixing();

  SketchedConv2dOptions options_;
  torch::Tensor first_, second_, bias_, sketch_, signs_;
  torch::Tensor mixing_;
  Sources seen_signs_;  // in mixing_
};
TORCH_MODULE(SketchedConv2d);

// Returns channels, geometry and bias of a convolution. Throws Error{Unsupported} for asymmetric
// padding "same", and Error{InvalidArgument} for a transposed convolution.
SketchedConv2dOptions geometry_of(const torch::nn::Conv2dImpl& conv);

struct ConvFitOptions {
  FactorMode mode = FactorMode::LowRank;
  Fit fit = Fit::Svd;  // Random or Projection of a sketched layer, Svd of a low-rank one
  Index rank = 0;
  Index terms = 1;
  std::uint64_t seed = 0;
};
// Returns a factored layer that approximates a trained convolution. Keeps its geometry, bias, type,
// device, requires_grad and training mode. Throws Error{InvalidArgument} for a fit that the mode
// does not have and for NaN or infinity in the weight or bias. Also throws like check_fit_size()
// for a group's size, and like geometry_of().
SketchedConv2d from_conv(const torch::nn::Conv2dImpl& conv, const ConvFitOptions& options);

}  // namespace hone::nn
