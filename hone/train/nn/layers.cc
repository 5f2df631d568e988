// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/layers.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <memory>
#include <optional>

#include "hone/train/nn/init.h"
#include "hone/train/random_state.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr double kNormEps = 1e-5, kBatchMomentum = 0.1;

namespace dense {

// at::linear is one operator to autocast, which casts its weight once for all uses; the sum of
// torch::nn::Linear is one of a transposed weight, which it casts for each.
class LinearImpl final : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  explicit LinearImpl(const torch::nn::LinearImpl& same) : torch::nn::LinearImpl(same) {}

  Tensor forward(const Tensor& x) { return at::linear(x, weight, bias); }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device) const override {
    const auto copy = torch::nn::LinearImpl::clone(device);
    return std::make_shared<LinearImpl>(dynamic_cast<const torch::nn::LinearImpl&>(*copy));
  }
};

}  // namespace dense

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

// Recomputes with copies of the running statistics, which take the update, so that the operator is
// the one that ran before.
Tensor NormedConv::forward(const Tensor& x, NormMode mode) const {
  const Tensor y = conv.ptr()->forward(x);
  const bool cudnn = at::globalContext().userEnabledCuDNN();
  if (groups > 0) return at::group_norm(y, groups, scale, shift, kNormEps, cudnn);
  if (mode == NormMode::Train) batches.add_(1);
  const bool again = mode == NormMode::Recompute;
  return at::batch_norm(y, scale, shift, again ? running_mean.clone() : running_mean,
                        again ? running_var.clone() : running_var, mode != NormMode::Evaluate,
                        kBatchMomentum, kNormEps, cudnn);
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
  NormedConv normed;
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
