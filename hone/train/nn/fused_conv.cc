// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/fused_conv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <variant>

#include "hone/core/check.h"
#include "hone/train/nn/arguments.h"
#include "hone/train/nn/ops.h"

namespace hone::nn {

using torch::Tensor;

ChannelAffine affine_of(const BatchNormTensors& norm, const Tensor& bias) {
  const at::NoGradGuard no_grad;
  const auto wide = [](const Tensor& tensor) { return tensor.to(at::kDouble); };
  Tensor factor = (wide(norm.variance) + norm.eps).rsqrt();
  if (norm.scale.defined()) factor = factor * wide(norm.scale);
  Tensor shift = (bias.defined() ? wide(bias) - wide(norm.mean) : -wide(norm.mean)) * factor;
  if (norm.shift.defined()) shift = shift + wide(norm.shift);
  return {factor, shift};
}

FoldedConv fold_batch_norm(const Tensor& weight, const Tensor& bias, const BatchNormTensors& norm) {
  const at::NoGradGuard no_grad;
  const ChannelAffine affine = affine_of(norm, bias);
  std::vector<std::int64_t> by_channel(static_cast<std::size_t>(weight.dim()), 1);
  by_channel[0] = weight.size(0);
  const Tensor scaled = weight.to(at::kDouble) * affine.scale.view(by_channel);
  return {scaled.to(weight.scalar_type()), affine.shift.to(weight.scalar_type())};
}

FusedConv2dImpl::FusedConv2dImpl(const FoldedConv& folded, const FusedConv2dOptions& options)
    : options_(options),
      weight_(register_buffer("weight", folded.weight.detach())),
      bias_(register_buffer("bias", folded.bias.defined() ? folded.bias.detach() : folded.bias)) {
  eval();
}

Tensor FusedConv2dImpl::forward_add(const Tensor& x, const Tensor& residual) {
  HONE_REQUIRE(!is_training(), "FusedConv2d",
               "Its weight is folded for evaluation. Train the model that it was made of.");
  const auto& [stride, padding, dilation, groups] = options_.geometry;
  HONE_CHECK(x.dim() == 4 && x.size(1) == weight_.size(1) * groups, "FusedConv2d",
             concat("images [batch, ", weight_.size(1) * groups, ", height, width]"),
             c10::str(x.sizes()));
  const bool wants_grad = at::GradMode::is_enabled() &&
                          (x.requires_grad() || (residual.defined() && residual.requires_grad()));
  const bool fits = !wants_grad && takes_fused_kernels(x) && takes_fused_kernels(weight_) &&
                    x.numel() > 0 && onednn::has_conv() &&
                    (!residual.defined() || options_.activation <= Activation::Relu);
  if (!fits) {
    Tensor y =
        at::conv2d(x, weight_, detail::optional_of(bias_), stride, padding, dilation, groups);
    if (residual.defined()) y = y + residual;
    return detail::activated(options_.activation, y);
  }
  const at::NoGradGuard no_grad;
  if (!sources_.are({weight_})) {
    packed_ = onednn::packed(weight_.contiguous(), options_.geometry, x.sizes());
    sources_.set({weight_});
  }
  const Tensor added =
      residual.defined() ? residual.contiguous(at::MemoryFormat::ChannelsLast) : residual;
  return onednn::conv(x, packed_, bias_, options_.geometry, options_.activation, added);
}

std::shared_ptr<torch::nn::Module> FusedConv2dImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy_of = [&](const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    return tensor.to(device.value_or(tensor.device()), tensor.scalar_type(), false, true);
  };
  auto copy =
      std::make_shared<FusedConv2dImpl>(FoldedConv{copy_of(weight_), copy_of(bias_)}, options_);
  copy->train(is_training());
  return copy;
}

std::string obstacle_to_fusing(const torch::nn::Conv2dImpl& conv) {
  if (!std::holds_alternative<torch::enumtype::kZeros>(conv.options.padding_mode())) {
    return "The convolution does not pad with zeros.";
  }
  if (!std::holds_alternative<torch::ExpandingArray<2>>(conv.options.padding())) {
    return "The padding of the convolution depends on the image.";
  }
  return {};
}

onednn::ConvGeometry conv_geometry(const torch::nn::Conv2dImpl& conv) {
  onednn::ConvGeometry geometry{.groups = conv.options.groups()};
  const auto take = [](const torch::ExpandingArray<2>& from, std::array<Index, 2>& to) {
    std::ranges::copy(*from, to.begin());
  };
  take(conv.options.stride(), geometry.stride);
  take(conv.options.dilation(), geometry.dilation);
  take(std::get<torch::ExpandingArray<2>>(conv.options.padding()), geometry.padding);
  return geometry;
}

}  // namespace hone::nn
