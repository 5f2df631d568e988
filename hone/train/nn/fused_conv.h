// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <optional>

#include "hone/train/interop.h"
#include "hone/train/nn/epilogue.h"
#include "hone/train/nn/onednn.h"

namespace hone::nn {

// What batch normalization multiplies and adds, by channel. Scale and shift may be undefined.
struct BatchNormTensors {
  torch::Tensor mean, variance, scale, shift;
  double eps = 1e-5;
};
// What a convolution with this bias, which may be undefined, and batch normalization in evaluation
// mode make of its products: scale · product + shift, with γ/√(σ² + ε) and β + (b − μ)·γ/√(σ² + ε).
// Both [out] in f64.
struct ChannelAffine {
  torch::Tensor scale, shift;
};
ChannelAffine affine_of(const BatchNormTensors& norm, const torch::Tensor& bias);

// The weight and the bias of a convolution that is followed by this batch normalization in
// evaluation mode (affine_of()), in the type of the weight [out, …]. The bias may be undefined.
struct FoldedConv {
  torch::Tensor weight, bias;
};
FoldedConv fold_batch_norm(const torch::Tensor& weight, const torch::Tensor& bias,
                           const BatchNormTensors& norm);

struct FusedConv2dOptions {
  onednn::ConvGeometry geometry = {};
  Activation activation = Activation::None;
};

// activation(convolution + bias) for inference, with zeros as padding. Weight and bias are buffers,
// so that optimizers ignore them. f32 images on the CPU are computed in channels-last layout, which
// the result has, too: code behind it must use reshape() or flatten(), not view(). All else uses
// LibTorch's operators, through which gradients flow to x. Throws Error{InvalidArgument} in
// training mode.
class FusedConv2dImpl final : public torch::nn::Cloneable<FusedConv2dImpl> {
 public:
  FusedConv2dImpl(const FoldedConv& folded, const FusedConv2dOptions& options);

  torch::Tensor forward(const torch::Tensor& x) { return forward_add(x, {}); }
  // activation(convolution + bias + residual).
  torch::Tensor forward_add(const torch::Tensor& x, const torch::Tensor& residual);

  const torch::Tensor& weight() const { return weight_; }
  const torch::Tensor& bias() const { return bias_; }
  const FusedConv2dOptions& options() const { return options_; }
  void reset() override {}
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

 private:
  FusedConv2dOptions options_;
  torch::Tensor weight_, bias_, packed_;
  Sources sources_;  // of packed_
};
TORCH_MODULE(FusedConv2d);

// A convolution without a float weight, such as a quantized one, which batch normalization cannot
// be folded into. It scales its products instead.
class ScaledConv {
 public:
  virtual ~ScaledConv() = default;
  virtual const torch::Tensor& bias() const = 0;  // may be undefined
  // activation(scale · product + shift + residual), without gradients. Scale and shift [out] are in
  // f32; the residual may be undefined. The bias is not added, because the shift has it.
  virtual torch::Tensor forward_scaled(const torch::Tensor& x, const ChannelAffine& affine,
                                       Activation activation, const torch::Tensor& residual) = 0;
};

// Why this convolution cannot be a FusedConv2d; empty if it can.
std::string obstacle_to_fusing(const torch::nn::Conv2dImpl& conv);
// Its geometry, which has no obstacle.
onednn::ConvGeometry conv_geometry(const torch::nn::Conv2dImpl& conv);

}  // namespace hone::nn
