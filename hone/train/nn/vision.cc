// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/vision.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/config/config_table.h"
#include "hone/core/machine/trace.h"
#include "hone/train/nn/resnet.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr Index kGroups = 8, kSmallSide = 8;

class Mlp final : public VisionNetImpl {
 public:
  Mlp(const VisionSpec& spec, TensorSource source) : VisionNetImpl(spec) {
    LayerBuilder build(*this, std::move(source));
    Index in = spec.channels * spec.height * spec.image_width;
    for (Index layer = 0; layer < spec.layers; ++layer, in = spec.width) {
      hidden_.push_back(build.linear(concat("hidden", layer), in, spec.width, 2));
    }
    last_ = build.linear("linear", in, spec.classes, 1);
  }

 private:
  VisionOutputs outputs_of(const Tensor& images) const override {
    Tensor x = images.flatten(1);
    for (const LinearLayer& layer : hidden_) x = layer.forward(x).relu();
    return {last_.forward(x), {}};
  }

  std::vector<LinearLayer> hidden_;
  LinearLayer last_;
};

class Cnn final : public VisionNetImpl {
 public:
  Cnn(const VisionSpec& spec, TensorSource source) : VisionNetImpl(spec) {
    LayerBuilder build(*this, std::move(source));
    Index channels = spec.channels, height = spec.height, width = spec.image_width;
    Index next = spec.width;
    for (Index block = 1; block == 1 || std::max(height, width) > kSmallSide; ++block) {
      if (std::min(height, width) < 2) break;
      convs_.push_back(build.normed_conv(concat("conv", block), concat("norm", block),
                                         {.in = channels, .out = next, .groups = kGroups}));
      channels = next;
      next = std::min(2 * next, 4 * spec.width);
      height /= 2, width /= 2;
    }
    last_ = build.linear("linear", channels * height * width, spec.classes, 1);
  }

 private:
  VisionOutputs outputs_of(const Tensor& images) const override {
    Tensor x = images;
    for (const NormedConv& conv : convs_) {
      x = at::max_pool2d(conv.forward(x, norm_mode(), Activation::Relu), {2, 2});
    }
    return {last_.forward(x.flatten(1)), {}};
  }

  std::vector<NormedConv> convs_;
  LinearLayer last_;
};

}  // namespace

std::span<const std::string_view> vision_models() {
  static const std::vector<std::string_view> models = [] {
    std::vector<std::string_view> out = {"mlp", "cnn"};
    for (const ResNetLayout& layout : resnets()) out.push_back(layout.name);
    return out;
  }();
  return models;
}

Index least_image_side(std::string_view name) { return name == "mlp" ? 1 : 4; }

// The first map of a ResNet for ImageNet has half of the image's side.
Index most_image_pixels(const VisionSpec& spec) {
  if (spec.name == "mlp") return std::numeric_limits<Index>::max();
  const ResNetLayout* const resnet = find_resnet(spec.name);
  const Index pixels_per_cell = resnet == nullptr || resnet->is_for_cifar() ? 1 : 4;
  return pixels_per_cell * kMaxMapValues / spec.width;
}

VisionSpec resolve(VisionSpec spec) {
  check_choice("model.name", spec.name, vision_models());
  const bool is_mlp = spec.name == "mlp", is_cnn = spec.name == "cnn";
  const ResNetLayout* const resnet = find_resnet(spec.name);
  const bool is_headless = resnet != nullptr && spec.classes == 0;
  HONE_CHECK(
      spec.channels > 0 && spec.height > 0 && spec.image_width > 0 &&
          (spec.classes > 1 || is_headless),
      "vision model", "nonempty images and at least two classes",
      concat(spec.channels, " x ", spec.height, " x ", spec.image_width, " and ", spec.classes));
  if (spec.width == 0) spec.width = is_mlp ? 256 : is_cnn ? 32 : resnet->width;
  HONE_CHECK(!is_cnn || spec.width % kGroups == 0, "model.width",
             concat("a multiple of ", kGroups, " for cnn"), spec.width);
  check_inner_widths(spec);
  const Index least = least_image_side(spec.name);
  HONE_CHECK(std::min(spec.height, spec.image_width) >= least, "vision model",
             concat("images of at least ", least, " pixels a side"),
             std::min(spec.height, spec.image_width));
  const Index most = most_image_pixels(spec);
  HONE_CHECK(
      spec.height <= most / spec.image_width, "vision model",
      concat("images of at most ", most, " pixels for ", spec.name, " of width ", spec.width),
      concat(spec.height, " x ", spec.image_width));
  return spec;
}

VisionOutputs VisionNetImpl::forward_with_features(const Tensor& images) const {
  HONE_CHECK(
      images.dim() == 4 && images.size(1) == spec_.channels && images.size(2) == spec_.height &&
          images.size(3) == spec_.image_width,
      spec_.name,
      concat("images [batch, ", spec_.channels, ", ", spec_.height, ", ", spec_.image_width, "]"),
      concat(images.dim(), " dimensions, the last of ", images.size(-1)));
  HONE_TRACE_ZONE("model", {"images", images.size(0)}, {"bytes", images.nbytes()});
  return outputs_of(images);
}

void use_channels_last(torch::nn::Module& module) {
  for (torch::Tensor& parameter : module.parameters()) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

VisionNet make_vision_net(const VisionSpec& spec, TensorSource source) {
  const VisionSpec resolved = resolve(spec);
  std::shared_ptr<VisionNetImpl> net;
  if (resolved.name == "mlp") {
    net = std::make_shared<Mlp>(resolved, std::move(source));
  } else if (resolved.name == "cnn") {
    net = std::make_shared<Cnn>(resolved, std::move(source));
  } else {
    net = std::make_shared<ResNetImpl>(resolved, std::move(source));
  }
  return net;
}

}  // namespace hone::nn
