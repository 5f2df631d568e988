// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/layers.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>

#include "hone/train/nn/init.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr double kNormEps = 1e-5, kBatchMomentum = 0.1;

}  // namespace

TensorSource new_tensors(std::uint64_t seed) {
  return [seed, streams = std::uint64_t{0}](const TensorRequest& request) mutable {
    Tensor tensor = at::full(request.sizes, request.value, request.type);
    if (request.std > 0) fill_normal(tensor, request.std, seed, streams++);
    return tensor;
  };
}

// Recomputes with copies of the running statistics, which take the update, so that the operator is
// the one that ran before.
Tensor NormedConv::forward(const Tensor& x, NormMode mode) const {
  const Index padding = weight.size(2) / 2;
  const Tensor y = at::conv2d(x, weight, {}, stride, padding);
  if (groups > 0) return at::group_norm(y, groups, scale, shift, kNormEps, false);
  if (mode == NormMode::Train) batches.add_(1);
  const bool again = mode == NormMode::Recompute;
  return at::batch_norm(y, scale, shift, again ? running_mean.clone() : running_mean,
                        again ? running_var.clone() : running_var, mode != NormMode::Evaluate,
                        kBatchMomentum, kNormEps, false);
}

Tensor LinearLayer::forward(const Tensor& x) const { return at::linear(x, weight, bias); }

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
  NormedConv layer;
  layer.stride = stride;
  layer.groups = groups;
  layer.weight = parameter({.name = conv + ".weight",
                            .sizes = {out, in, kernel, kernel},
                            .std = std::sqrt(2.0 / static_cast<double>(kernel * kernel * in))});
  layer.scale = parameter({.name = norm + ".weight", .sizes = {out}, .value = 1});
  layer.shift = parameter({.name = norm + ".bias", .sizes = {out}});
  if (groups == 0) {
    layer.running_mean = buffer({.name = norm + ".running_mean", .sizes = {out}});
    layer.running_var = buffer({.name = norm + ".running_var", .sizes = {out}, .value = 1});
    layer.batches =
        buffer({.name = norm + ".num_batches_tracked", .sizes = {}, .type = torch::kLong});
  }
  return layer;
}

LinearLayer LayerBuilder::linear(const std::string& name, Index in, Index out, double gain) {
  return {parameter({.name = name + ".weight",
                     .sizes = {out, in},
                     .std = std::sqrt(gain / static_cast<double>(in))}),
          parameter({.name = name + ".bias", .sizes = {out}})};
}

}  // namespace hone::nn
