// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "hone/train/compress/quantized_linear.h"
#include "hone/train/nn/fused_conv.h"
#include "hone/train/nn/onednn.h"

namespace hone::nn {

struct QuantizedConv2dOptions {
  Index in_channels = 0, out_channels = 0;
  std::array<Index, 2> kernel{};  // rows, columns
  onednn::ConvGeometry geometry = {};
};

// A convolution's weight [out, in / groups, rows, columns] as the matrix [out, rows · columns ·
// in / groups] that is stored, and back, as a view in channels-last layout. The channels of a pixel
// are next to each other, as they are in channels-last images.
torch::Tensor conv_matrix(const torch::Tensor& weight);
torch::Tensor conv_weight(const torch::Tensor& matrix, const QuantizedConv2dOptions& options);

// The rows of a convolution's product with conv_matrix(), [pixels, rows · columns · in], one for
// each output pixel of the images x. For one group.
torch::Tensor conv_patches(const torch::Tensor& x, const QuantizedConv2dOptions& options);

// A convolution for inference, padded with zeros, with a weight in few bits and a bias of f32 that
// may be undefined. Both are buffers. Packed products need one group; they read and write
// channels-last images. Decoded ones are those of a FusedConv2d. All else uses LibTorch's
// operators, through which gradients flow to x.
class QuantizedConv2dImpl final : public KeepsTypes<QuantizedConv2dImpl>,
                                  public QuantizedLayer,
                                  public ScaledConv {
 public:
  QuantizedConv2dImpl(StoredWeight weight, const torch::Tensor& bias,
                      const QuantizedConv2dOptions& options);

  torch::Tensor forward(const torch::Tensor& x);
  torch::Tensor forward_scaled(const torch::Tensor& x, const ChannelAffine& affine,
                               Activation activation, const torch::Tensor& residual) override;

  const QuantizedConv2dOptions& options() const { return options_; }
  const torch::Tensor& bias() const override { return bias_; }
  std::vector<Weight> stored_weights() override { return {{"weight", &weight_}}; }
  void reset() override;

 private:
  bool takes_packed(const torch::Tensor& x) const;
  torch::Tensor multiply_packed(const torch::Tensor& x, const torch::Tensor& bias,
                                const std::function<void(Index begin, Index end, float* y)>& then);
  FusedConv2dImpl& decoded_conv(const ChannelAffine& affine, Activation activation);

  QuantizedConv2dOptions options_;
  StoredWeight weight_;
  torch::Tensor bias_;
  std::shared_ptr<FusedConv2dImpl> decoded_;
  Sources decoded_sources_;
};
TORCH_MODULE(QuantizedConv2d);

}  // namespace hone::nn
