// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/layers.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <memory>
#include <optional>

#include "hone/core/check.h"
#include "hone/train/nn/fused_conv.h"
#include "hone/train/nn/init.h"
#include "hone/train/nn/linear.h"
#include "hone/train/random_state.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr double kNormEps = 1e-5, kBatchMomentum = 0.1;

// A layer of LibTorch as it is made: with weights that are drawn, and are to be replaced. It is of
// the smallest size, so that this takes no time, and draws nothing from the generator of others.
template <class Impl, class Options>
std::shared_ptr<Impl> smallest(const Options& options) {
  const RandomState random;
  auto layer = std::make_shared<Impl>(options);
  random.restore();
  return layer;
}

}  // namespace

TensorSource new_tensors(std::uint64_t seed) {
  return [seed, streams = std::uint64_t{0}](const TensorRequest& request) mutable {
    Tensor tensor = at::full(request.sizes, request.value, request.type);
    if (request.std > 0) fill_normal(tensor, request.std, seed, streams++);
    return tensor;
  };
}

// The folded convolution of a layer, made again where weights or statistics were written to.
class FoldedNorm {
 public:
  // activation(normalized convolution + residual). Undefined unless the Slot holds a convolution
  // that can be folded.
  Tensor forward(const NormedConv& normed, const Tensor& x, Activation activation,
                 const Tensor& residual) {
    const std::shared_ptr<torch::nn::Module> layer = normed.conv->layer().ptr();
    const BatchNormTensors norm{.mean = normed.running_mean,
                                .variance = normed.running_var,
                                .scale = normed.scale,
                                .shift = normed.shift,
                                .eps = kNormEps};
    if (auto* const scaled = dynamic_cast<ScaledConv*>(layer.get())) {
      if (!is_current(normed, scaled->bias(), {})) {
        const ChannelAffine affine = affine_of(norm, scaled->bias());
        affine_ = {affine.scale.to(at::kFloat), affine.shift.to(at::kFloat)};
      }
      return scaled->forward_scaled(x, affine_, activation, residual);
    }
    const auto* const conv = layer->as<torch::nn::Conv2dImpl>();
    if (conv == nullptr || !obstacle_to_fusing(*conv).empty()) return {};
    const bool has_fused = fused_ && fused_->options().activation == activation;
    if (!is_current(normed, conv->bias, conv->weight) || !has_fused) {
      fused_ = std::make_shared<FusedConv2dImpl>(
          fold_batch_norm(conv->weight, conv->bias, norm),
          FusedConv2dOptions{.geometry = conv_geometry(*conv), .activation = activation});
    }
    return fused_->forward_add(x, residual);
  }

 private:
  // Whether nothing was written to since the last call. Batch normalization updates its statistics
  // without a new version, but counts the batches.
  bool is_current(const NormedConv& normed, const Tensor& bias, const Tensor& weight) {
    const std::vector<Tensor> now{
        weight,        bias, normed.scale, normed.shift, normed.running_mean, normed.running_var,
        normed.batches};
    if (sources_.are(now)) return true;
    sources_.set(now);
    return false;
  }

  std::shared_ptr<FusedConv2dImpl> fused_;
  ChannelAffine affine_;
  Sources sources_;
};

// Recomputes with copies of the running statistics, which take the update, so that the operator is
// the one that ran before.
Tensor NormedConv::forward(const Tensor& x, NormMode mode, Activation activation,
                           const Tensor& residual) const {
  if (folded && mode == NormMode::Evaluate && !at::GradMode::is_enabled()) {
    if (Tensor y = folded->forward(*this, x, activation, residual); y.defined()) return y;
  }
  Tensor y = normalize(conv.ptr()->forward(x), mode);
  if (residual.defined()) y = y + residual;
  return detail::activated(activation, y);
}

Tensor NormedConv::normalize(const Tensor& y, NormMode mode) const {
  const bool cudnn = at::globalContext().userEnabledCuDNN();
  if (groups > 0) return at::group_norm(y, groups, scale, shift, kNormEps, cudnn);
  if (mode == NormMode::Train) batches.add_(1);
  const bool again = mode == NormMode::Recompute;
  return at::batch_norm(y, scale, shift, again ? running_mean.clone() : running_mean,
                        again ? running_var.clone() : running_var, mode != NormMode::Evaluate,
                        kBatchMomentum, kNormEps, cudnn);
}

FusionSite fusion_site(NormedConv& conv, const std::string& prefix, Activation activation,
                       bool has_residual) {
  HONE_REQUIRE(activation <= Activation::Relu, "fuse", "A fused convolution ends with ReLU.");
  const bool has_relu = activation == Activation::Relu;
  FusionSite site{.pattern = concat("conv_bn", has_residual ? "_add" : "", has_relu ? "_relu" : ""),
                  .layers = {prefix + conv.path, prefix + conv.norm_path},
                  .operators = 2 + (has_residual ? 1 : 0) + (has_relu ? 1 : 0),
                  .channels_last = true};
  const std::shared_ptr<torch::nn::Module> content = conv.conv->layer().ptr();
  const auto* const layer = content->as<torch::nn::Conv2dImpl>();
  const bool is_scaled = dynamic_cast<ScaledConv*>(content.get()) != nullptr;
  site.obstacle = conv.groups > 0    ? "Groups are normalized by statistics of each image."
                  : is_scaled        ? ""
                  : layer == nullptr ? "The convolution was replaced by another layer."
                                     : obstacle_to_fusing(*layer);
  // One layer for all calls, so that a call does not fold again.
  const auto folded = std::make_shared<FoldedNorm>();
  const auto run = [&conv, activation, has_residual](const std::shared_ptr<FoldedNorm>& with) {
    return [=, &conv, zeros = Tensor()](const Tensor& x) mutable {
      const at::NoGradGuard no_grad;
      NormedConv part = conv;
      part.folded = with;
      if (has_residual && !zeros.defined()) {
        zeros = at::zeros_like(part.forward(x, NormMode::Evaluate, activation));
      }
      return part.forward(x, NormMode::Evaluate, activation, zeros);
    };
  };
  site.separate = run(nullptr);
  site.fused = run(folded);
  site.apply = [&conv, folded] { conv.folded = folded; };
  site.undo = [&conv] { conv.folded = nullptr; };
  return site;
}

Tensor LinearLayer::forward(const Tensor& x) const { return linear.ptr()->forward(x); }

std::pair<torch::nn::Module*, std::string> LayerBuilder::owner_of(const std::string& name) {
  torch::nn::Module* owner = &module_;
  std::size_t begin = 0;
  for (std::size_t dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string part = name.substr(begin, dot - begin);
    const auto children = owner->named_children();
    if (const auto* child = children.find(part)) {
      owner = child->get();
    } else {
      owner = owner->register_module(part, std::make_shared<torch::nn::Module>(part)).get();
    }
  }
  return {owner, name.substr(begin)};
}

Slot LayerBuilder::add_slot(const std::string& name, torch::nn::AnyModule layer) {
  const auto [owner, last] = owner_of(name);
  return owner->register_module(last, Slot(std::move(layer)));
}

Tensor LayerBuilder::parameter(const TensorRequest& request) {
  const auto [owner, last] = owner_of(request.name);
  return owner->register_parameter(last, source_(request));
}

Tensor LayerBuilder::buffer(const TensorRequest& request) {
  const auto [owner, last] = owner_of(request.name);
  return owner->register_buffer(last, source_(request));
}

NormedConv LayerBuilder::normed_conv(const std::string& conv, const std::string& norm,
                                     const ConvShape& shape) {
  const auto [in, out, kernel, stride, groups] = shape;
  const auto layer = smallest<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(1, 1, 1).bias(false));
  layer->options.in_channels(in).out_channels(out).kernel_size(kernel).stride(stride);
  layer->options.padding(torch::ExpandingArray<2>(kernel / 2));
  layer->weight.set_data(
      source_({.name = conv + ".weight",
               .sizes = {out, in, kernel, kernel},
               .std = std::sqrt(2.0 / static_cast<double>(kernel * kernel * in))}));
  NormedConv normed{.path = conv, .norm_path = norm};
  normed.conv = add_slot(conv, torch::nn::AnyModule(layer));
  normed.groups = groups;
  normed.scale = parameter({.name = norm + ".weight", .sizes = {out}, .value = 1});
  normed.shift = parameter({.name = norm + ".bias", .sizes = {out}});
  if (groups == 0) {
    normed.running_mean = buffer({.name = norm + ".running_mean", .sizes = {out}});
    normed.running_var = buffer({.name = norm + ".running_var", .sizes = {out}, .value = 1});
    normed.batches =
        buffer({.name = norm + ".num_batches_tracked", .sizes = {}, .type = torch::kLong});
  }
  return normed;
}

LinearLayer LayerBuilder::linear(const std::string& name, Index in, Index out, double gain) {
  const auto layer = smallest<dense::LinearImpl>(torch::nn::LinearOptions(1, 1));
  layer->options.in_features(in).out_features(out);
  layer->weight.set_data(source_({.name = name + ".weight",
                                  .sizes = {out, in},
                                  .std = std::sqrt(gain / static_cast<double>(in))}));
  layer->bias.set_data(source_({.name = name + ".bias", .sizes = {out}}));
  return {add_slot(name, torch::nn::AnyModule(layer))};
}

}  // namespace hone::nn
