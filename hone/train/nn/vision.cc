// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/vision.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/trace.h"
#include "hone/train/nn/init.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr double kNormEps = 1e-5, kBatchMomentum = 0.1;
constexpr Index kGroups = 8, kSmallSide = 8;
constexpr Index kStages = 3, kBlocks = 3;

// Takes every second pixel and pads the channels with zeros on both sides.
Tensor shortcut(const Tensor& x, Index channels) {
  const Index added = channels - x.size(1);
  if (added == 0) return x;
  const Tensor small = x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2);
  return at::constant_pad_nd(small, {0, 0, 0, 0, added / 2, added - added / 2}, 0);
}

}  // namespace

VisionSpec resolve(VisionSpec spec) {
  const bool is_mlp = spec.name == "mlp", is_cnn = spec.name == "cnn";
  HONE_CHECK(is_mlp || is_cnn || spec.name == "resnet20", "model.name", "mlp, cnn or resnet20",
             spec.name);
  HONE_CHECK(
      spec.channels > 0 && spec.height > 0 && spec.image_width > 0 && spec.classes > 1,
      "vision model", "nonempty images and at least two classes",
      concat(spec.channels, " x ", spec.height, " x ", spec.image_width, " and ", spec.classes));
  if (spec.width == 0) spec.width = is_mlp ? 256 : is_cnn ? 32 : 16;
  HONE_CHECK(!is_cnn || spec.width % kGroups == 0, "model.width",
             concat("a multiple of ", kGroups, " for cnn"), spec.width);
  const Index least = is_mlp ? 1 : 4;
  HONE_CHECK(std::min(spec.height, spec.image_width) >= least, "vision model",
             concat("images of at least ", least, " pixels a side"),
             std::min(spec.height, spec.image_width));
  return spec;
}

Tensor NormedConv::forward(const Tensor& x, bool training) const {
  const Index padding = weight.size(2) / 2;
  const Tensor y = at::conv2d(x, weight, {}, stride, padding);
  if (groups > 0) return at::group_norm(y, groups, scale, shift, kNormEps, false);
  if (training) batches.add_(1);
  return at::batch_norm(y, scale, shift, running_mean, running_var, training, kBatchMomentum,
                        kNormEps, false);
}

TensorSource new_tensors(std::uint64_t seed) {
  return [seed, streams = std::uint64_t{0}](const TensorRequest& request) mutable {
    Tensor tensor = at::full(request.sizes, request.value, request.type);
    if (request.std > 0) fill_normal(tensor, request.std, seed, streams++);
    return tensor;
  };
}

VisionNetImpl::VisionNetImpl(const VisionSpec& spec, TensorSource source)
    : spec_(resolve(spec)), source_(std::move(source)) {
  if (spec_.name == "mlp") {
    build_mlp();
  } else if (spec_.name == "cnn") {
    build_cnn();
  } else {
    build_resnet();
  }
  source_ = nullptr;
}

std::pair<torch::nn::Module*, std::string> VisionNetImpl::owner_of(const std::string& name) {
  torch::nn::Module* owner = this;
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

Tensor VisionNetImpl::add_parameter(const TensorRequest& request) {
  const auto [owner, last] = owner_of(request.name);
  return owner->register_parameter(last, source_(request));
}

Tensor VisionNetImpl::add_buffer(const TensorRequest& request) {
  const auto [owner, last] = owner_of(request.name);
  return owner->register_buffer(last, source_(request));
}

NormedConv VisionNetImpl::add_conv(const std::string& conv, const std::string& norm, Index in,
                                   Index out, Index stride, Index groups) {
  NormedConv layer;
  layer.stride = stride;
  layer.groups = groups;
  layer.weight = add_parameter({.name = conv + ".weight",
                                .sizes = {out, in, 3, 3},
                                .std = std::sqrt(2.0 / (9.0 * static_cast<double>(in)))});
  layer.scale = add_parameter({.name = norm + ".weight", .sizes = {out}, .value = 1});
  layer.shift = add_parameter({.name = norm + ".bias", .sizes = {out}});
  if (groups == 0) {
    layer.running_mean = add_buffer({.name = norm + ".running_mean", .sizes = {out}});
    layer.running_var = add_buffer({.name = norm + ".running_var", .sizes = {out}, .value = 1});
    layer.batches =
        add_buffer({.name = norm + ".num_batches_tracked", .sizes = {}, .type = torch::kLong});
  }
  return layer;
}

VisionNetImpl::Linear VisionNetImpl::add_linear(const std::string& name, Index in, Index out,
                                                double gain) {
  return {add_parameter({.name = name + ".weight",
                         .sizes = {out, in},
                         .std = std::sqrt(gain / static_cast<double>(in))}),
          add_parameter({.name = name + ".bias", .sizes = {out}})};
}

void VisionNetImpl::build_mlp() {
  Index in = spec_.channels * spec_.height * spec_.image_width;
  for (Index layer = 0; layer < spec_.layers; ++layer, in = spec_.width) {
    linears_.push_back(add_linear(concat("hidden", layer), in, spec_.width, 2));
  }
  linears_.push_back(add_linear("linear", in, spec_.classes, 1));
}

void VisionNetImpl::build_cnn() {
  Index channels = spec_.channels, height = spec_.height, width = spec_.image_width;
  Index next = spec_.width;
  for (Index block = 1; block == 1 || std::max(height, width) > kSmallSide; ++block) {
    if (std::min(height, width) < 2) break;
    convs_.push_back(
        add_conv(concat("conv", block), concat("norm", block), channels, next, 1, kGroups));
    channels = next;
    next = std::min(2 * next, 4 * spec_.width);
    height /= 2, width /= 2;
  }
  linears_.push_back(add_linear("linear", channels * height * width, spec_.classes, 1));
}

void VisionNetImpl::build_resnet() {
  convs_.push_back(add_conv("conv1", "bn1", spec_.channels, spec_.width, 1, 0));
  Index channels = spec_.width;
  for (Index stage = 0; stage < kStages; ++stage) {
    const Index out = spec_.width << stage;
    for (Index block = 0; block < kBlocks; ++block, channels = out) {
      const std::string at = concat("layer", stage + 1, ".", block, ".");
      const Index stride = stage > 0 && block == 0 ? 2 : 1;
      convs_.push_back(add_conv(at + "conv1", at + "bn1", channels, out, stride, 0));
      convs_.push_back(add_conv(at + "conv2", at + "bn2", out, out, 1, 0));
    }
  }
  linears_.push_back(add_linear("linear", channels, spec_.classes, 1));
}

Tensor VisionNetImpl::forward_resnet(const Tensor& images) const {
  Tensor x = convs_[0].forward(images, is_training()).relu();
  for (std::size_t i = 1; i < convs_.size(); i += 2) {
    const Tensor inner = convs_[i].forward(x, is_training()).relu();
    const Tensor outer = convs_[i + 1].forward(inner, is_training());
    x = (outer + shortcut(x, outer.size(1))).relu();
  }
  return x.mean({2, 3});
}

Tensor VisionNetImpl::forward(const Tensor& images) const {
  HONE_CHECK(
      images.dim() == 4 && images.size(1) == spec_.channels && images.size(2) == spec_.height &&
          images.size(3) == spec_.image_width,
      spec_.name,
      concat("images [batch, ", spec_.channels, ", ", spec_.height, ", ", spec_.image_width, "]"),
      concat(images.dim(), " dimensions, the last of ", images.size(-1)));
  HONE_TRACE_ZONE("model", {"images", images.size(0)}, {"bytes", images.nbytes()});
  Tensor x = images;
  if (mixes_batch()) {
    x = forward_resnet(x);
  } else {
    for (const NormedConv& conv : convs_) {
      x = at::max_pool2d(conv.forward(x, is_training()).relu(), {2, 2});
    }
    x = x.flatten(1);
  }
  for (const Linear& layer : linears_) {
    x = at::linear(x, layer.weight, layer.bias);
    if (&layer != &linears_.back()) x = x.relu();
  }
  return x;
}

}  // namespace hone::nn
