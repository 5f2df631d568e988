// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/resnet.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/nn/recompute.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr Index kBottleneckExpansion = 4;
constexpr std::array<ResNetLayout, 7> kLayouts = {
    {{.name = "resnet18", .width = 64, .blocks = {2, 2, 2, 2}},
     {.name = "resnet20", .width = 16, .blocks = {3, 3, 3, 0}},
     {.name = "resnet32", .width = 16, .blocks = {5, 5, 5, 0}},
     {.name = "resnet34", .width = 64, .blocks = {3, 4, 6, 3}},
     {.name = "resnet44", .width = 16, .blocks = {7, 7, 7, 0}},
     {.name = "resnet50", .width = 64, .bottleneck = true, .blocks = {3, 4, 6, 3}},
     {.name = "resnet56", .width = 16, .blocks = {9, 9, 9, 0}}}};

const ResNetLayout& layout_of(std::string_view name) {
  const ResNetLayout* const layout = find_resnet(name);
  HONE_CHECK(layout != nullptr, "ResNet", "the name of a ResNet", name);
  return *layout;
}

// Widths of a block that inner_widths sets.
Index inner_layers(const ResNetLayout& layout) { return layout.bottleneck ? 2 : 1; }

Index expansion_of(const ResNetLayout& layout) {
  return layout.bottleneck ? kBottleneckExpansion : 1;
}

// Takes every second pixel and pads the channels with zeros on both sides.
Tensor subsample(const Tensor& x, Index channels) {
  const Index added = channels - x.size(1);
  if (added == 0) return x;
  const Tensor small = x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2);
  return at::constant_pad_nd(small, {0, 0, 0, 0, added / 2, added - added / 2}, 0);
}

}  // namespace

std::span<const ResNetLayout> resnets() { return kLayouts; }

const ResNetLayout* find_resnet(std::string_view name) {
  const auto* const found = std::ranges::find(kLayouts, name, &ResNetLayout::name);
  return found == kLayouts.end() ? nullptr : found;
}

std::vector<Index> published_inner_widths(const VisionSpec& spec) {
  const ResNetLayout& layout = layout_of(spec.name);
  std::vector<Index> out;
  for (std::size_t stage = 0; stage < layout.blocks.size(); ++stage) {
    const auto count = static_cast<std::size_t>(layout.blocks[stage] * inner_layers(layout));
    out.insert(out.end(), count, spec.width << stage);
  }
  return out;
}

void check_inner_widths(const VisionSpec& spec) {
  if (spec.inner_widths.empty()) return;
  const bool is_resnet = find_resnet(spec.name) != nullptr;
  HONE_CHECK(is_resnet, "inner_widths", "a ResNet", spec.name);
  const std::vector<Index> most = published_inner_widths(spec);
  HONE_CHECK(most.size() == spec.inner_widths.size(), "inner_widths",
             concat(most.size(), " numbers for ", spec.name), spec.inner_widths.size());
  for (std::size_t i = 0; i < most.size(); ++i) {
    const Index width = spec.inner_widths[i];
    HONE_CHECK(width >= 1 && width <= most[i], "inner_widths", concat("1 to ", most[i]), width);
  }
}

// Every stage but the first halves both sides, rounding up, and a network for ImageNet halves them
// twice before.
MapCells map_cells(const VisionSpec& spec, ResNetImpl::Stage stage) {
  const bool is_last = stage == ResNetImpl::Stage::Last;
  const int halvings = (layout_of(spec.name).is_for_cifar() ? 2 : 5) - (is_last ? 0 : 1);
  const Index side = Index{1} << halvings;
  return {ceil_div(spec.height, side), ceil_div(spec.image_width, side)};
}

ResNetImpl::ResNetImpl(const VisionSpec& spec, TensorSource source)
    : VisionNetImpl(resolve(spec)), layout_(layout_of(spec.name)) {
  LayerBuilder build(*this, std::move(source));
  const bool small = layout_.is_for_cifar();
  const Index width = this->spec().width, classes = this->spec().classes;
  stem_ = build.normed_conv("conv1", "bn1",
                            {.in = this->spec().channels,
                             .out = width,
                             .kernel = small ? 3 : 7,
                             .stride = small ? 1 : 2});
  Index channels = width;
  const std::vector<Index> inner =
      spec.inner_widths.empty() ? published_inner_widths(this->spec()) : spec.inner_widths;
  std::span<const Index> rest = inner;
  const auto each = static_cast<std::size_t>(inner_layers(layout_));
  for (Index stage = 0; stage < (small ? 3 : 4); ++stage) {
    std::vector<Block>& blocks = stages_.emplace_back();
    for (Index i = 0; i < layout_.blocks[static_cast<std::size_t>(stage)]; ++i) {
      blocks.push_back(build_block(build, stage, i, channels, rest.first(each)));
      rest = rest.subspan(each);
      channels = blocks.back().convs.back().channels();
    }
  }
  if (classes > 0) head_ = build.linear(small ? "linear" : "fc", channels, classes, 1);
}

ResNetImpl::Block ResNetImpl::build_block(LayerBuilder& build, Index stage, Index index,
                                          Index channels, std::span<const Index> widths) const {
  const std::string at = concat("layer", stage + 1, ".", index, ".");
  const Index stride = stage > 0 && index == 0 ? 2 : 1;
  const Index out = (spec().width << stage) * expansion_of(layout_);
  Block block;
  const auto add = [&](const ConvShape& shape) {
    const std::size_t number = block.convs.size() + 1;
    block.convs.push_back(
        build.normed_conv(concat(at, "conv", number), concat(at, "bn", number), shape));
  };
  if (layout_.bottleneck) {
    add({.in = channels, .out = widths[0], .kernel = 1});
    add({.in = widths[0], .out = widths[1], .stride = stride});
    add({.in = widths[1], .out = out, .kernel = 1});
  } else {
    add({.in = channels, .out = widths[0], .stride = stride});
    add({.in = widths[0], .out = out});
  }
  if (!layout_.is_for_cifar() && (stride != 1 || channels != out)) {
    block.downsample =
        build.normed_conv(at + "downsample.0", at + "downsample.1",
                          {.in = channels, .out = out, .kernel = 1, .stride = stride});
  }
  return block;
}

bool ResNetImpl::set_recompute_every(Index k) {
  HONE_CHECK(k >= 0, spec().name, "k >= 0 for recomputing every k-th block", k);
  return std::exchange(recompute_every_, k) != k;
}

Tensor ResNetImpl::forward_block(const Block& block, const Tensor& x, NormMode mode) {
  Tensor y = x;
  for (std::size_t i = 0; i + 1 < block.convs.size(); ++i) {
    y = block.convs[i].forward(y, mode, Activation::Relu);
  }
  const NormedConv& last = block.convs.back();
  const Tensor shortcut =
      block.downsample ? block.downsample->forward(x, mode) : subsample(x, last.channels());
  return last.forward(y, mode, Activation::Relu, shortcut);
}

// The segment counts its own runs: whatever follows the first belongs to a backward pass, by when
// the module may be in another mode.
Tensor ResNetImpl::run_block(const Block& block, Index number, const Tensor& x) const {
  const NormMode mode = norm_mode();
  if (recompute_every_ == 0 || number % recompute_every_ != 0) return forward_block(block, x, mode);
  const auto segment = [block, next = mode](const Tensors& in) mutable -> Tensors {
    const NormMode now = next;
    if (now == NormMode::Train) next = NormMode::Recompute;
    return {forward_block(block, in[0], now)};
  };
  return recompute(segment, {x})[0];
}

Tensor ResNetImpl::run_stage(std::size_t stage, Tensor x) const {
  Index number = 0;  // of a block, through all stages
  for (std::size_t i = 0; i < stage; ++i) number += std::ssize(stages_[i]);
  for (const Block& block : stages_[stage]) x = run_block(block, number++, x);
  return x;
}

Tensor ResNetImpl::forward_stages(const Tensor& images) const {
  HONE_CHECK(images.dim() == 4 && images.size(1) == spec().channels, spec().name,
             concat("images [batch, ", spec().channels, ", height, width]"),
             concat(images.dim(), " dimensions, the second of ",
                    images.dim() > 1 ? images.size(1) : Index{0}));
  Tensor x = stem_.forward(images, norm_mode(), Activation::Relu);
  if (!layout_.is_for_cifar()) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) x = run_stage(i, x);
  return x;
}

Tensor ResNetImpl::forward_last_stage(Tensor x) const {
  return run_stage(stages_.size() - 1, std::move(x));
}

ResNetImpl::Maps ResNetImpl::forward_maps(const Tensor& images) const {
  const Tensor before = forward_stages(images);
  return {before, forward_last_stage(before)};
}

Tensor ResNetImpl::forward_features(const Tensor& images, Stage stage) const {
  const Tensor before = forward_stages(images);
  return stage == Stage::Penultimate ? before : forward_last_stage(before);
}

Tensor ResNetImpl::classify(const Tensor& means) const {
  return head_ ? head_->forward(means) : means;
}

Index ResNetImpl::feature_channels(Stage stage) const {
  const auto last = static_cast<Index>(stages_.size()) - (stage == Stage::Penultimate ? 2 : 1);
  return (spec().width << last) * expansion_of(layout_);
}

std::vector<FusionSite> ResNetImpl::fusion_sites(const std::string& path) {
  std::vector<FusionSite> sites{fusion_site(stem_, path, Activation::Relu, false)};
  for (std::vector<Block>& stage : stages_) {
    for (Block& block : stage) {
      for (NormedConv& conv : block.convs) {
        const bool is_last = &conv == &block.convs.back();
        sites.push_back(fusion_site(conv, path, Activation::Relu, is_last));
      }
      if (!block.downsample) continue;
      sites.push_back(fusion_site(*block.downsample, path, Activation::None, false));
    }
  }
  return sites;
}

VisionOutputs ResNetImpl::outputs_of(const Tensor& images) const {
  const Tensor means = forward_features(images).mean({2, 3});
  return {classify(means), means};
}

}  // namespace hone::nn
