// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/prune_channels.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/compress/saliency.h"
#include "hone/train/surgery/slot.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kChannels = "prune_channels";

// A group of channels by the names of its tensors.
struct Group {
  std::string conv, norm, next;  // "layer1.0.conv1", "layer1.0.bn1", "layer1.0.conv2"
};

// All of a ResNet, in the order of inner_widths.
std::vector<Group> groups_of(const VisionSpec& spec) {
  const ResNetLayout& layout = *find_resnet(spec.name);
  const int inner = layout.bottleneck ? 2 : 1;
  std::vector<Group> out;
  for (std::size_t stage = 0; stage < layout.blocks.size(); ++stage) {
    for (Index block = 0; block < layout.blocks[stage]; ++block) {
      const std::string at = concat("layer", stage + 1, ".", block, ".");
      for (int i = 1; i <= inner; ++i) {
        out.push_back({concat(at, "conv", i), concat(at, "bn", i), concat(at, "conv", i + 1)});
      }
    }
  }
  return out;
}

using TensorMap = std::map<std::string, Tensor>;

TensorMap tensors_of(const torch::nn::Module& model) {
  TensorMap out;
  for (const NamedTensor& tensor : parameters_by_path(model)) out[tensor.name] = tensor.value;
  for (const NamedTensor& tensor : buffers_by_path(model)) out[tensor.name] = tensor.value;
  return out;
}

// Sums over everything that belongs to a channel, which is in dimension `axis`.
Tensor by_channel(const Tensor& scores, Index axis) {
  return scores.to(at::kDouble).transpose(0, axis).flatten(1).sum(1).to(at::kCPU);
}

// What each tensor of a score means for its channels: w², or |w · g| summed over batches.
TensorMap element_scores(const ResNet& model, const ChannelOptions& options,
                         const std::vector<std::string>& names) {
  const TensorMap tensors = tensors_of(*model);
  std::vector<NamedTensor> weights;
  for (const std::string& name : names) weights.push_back({name, tensors.at(name)});
  TensorMap out;
  if (options.score == PruneScore::Magnitude) {
    for (const auto& [name, weight] : weights) {
      out[name] = weight.detach().to(at::kDouble).square();
    }
    return out;
  }
  const std::vector<Tensor> sums =
      gradient_saliencies(kChannels, *model, weights, options.loss, options.batches);
  for (std::size_t i = 0; i < names.size(); ++i) out[names[i]] = sums[i];
  return out;
}

std::vector<Tensor> channel_scores(const ResNet& model, const std::vector<Group>& groups,
                                   const ChannelOptions& options) {
  std::vector<std::string> names;
  for (const Group& group : groups) {
    for (const std::string& conv : {group.conv, group.next}) {
      const std::string name = conv + ".weight";
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  const TensorMap elements = element_scores(model, options, names);
  std::vector<Tensor> out;
  for (const Group& group : groups) {
    out.push_back(by_channel(elements.at(group.conv + ".weight"), 0) +
                  by_channel(elements.at(group.next + ".weight"), 1));
    HONE_REQUIRE(at::isfinite(out.back()).all().item<bool>(), kChannels,
                 concat("The scores of ", group.conv, " are not finite."));
  }
  return out;
}

// How many channels of each group remain.
std::vector<Index> kept_counts(const std::vector<Tensor>& scores, const ChannelOptions& options) {
  std::vector<Index> counts;
  std::vector<Tensor> scaled;  // by the mean of their group
  for (const Tensor& score : scores) scaled.push_back(score / score.mean().clamp_min(1e-300));
  double limit = 0;
  if (options.global) {
    const Tensor sorted = std::get<0>(at::cat(scaled).sort());
    const Index removed = std::llround(options.ratio * static_cast<double>(sorted.numel()));
    limit = removed == 0 ? -1 : sorted[removed - 1].item<double>();
  }
  for (const Tensor& score : scaled) {
    const Index all = score.numel();
    const Index kept = options.global
                           ? score.gt(limit).sum().item<Index>()
                           : all - std::llround(options.ratio * static_cast<double>(all));
    const Index rounded = (kept + options.round_to / 2) / options.round_to * options.round_to;
    counts.push_back(std::clamp<Index>(rounded, std::min(options.round_to, all), all));
  }
  return counts;
}

// The `count` channels of the largest scores, ascending; among equal ones, those that come later.
Tensor largest(const Tensor& scores, Index count) {
  const Tensor order = std::get<1>(scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  return std::get<0>(order.slice(0, scores.numel() - count).sort());
}

}  // namespace

PrunedResNet prune_channels(ResNet& model, const ChannelOptions& options) {
  HONE_CHECK(options.ratio >= 0 && options.ratio < 1, kChannels, "a ratio in [0, 1)",
             options.ratio);
  HONE_CHECK(options.round_to >= 1, kChannels, "round_to of at least 1", options.round_to);
  const std::vector<Group> groups = groups_of(model->spec());
  TensorMap tensors = tensors_of(*model);
  for (const Group& group : groups) {
    if (tensors.contains(group.conv + ".weight") && tensors.contains(group.next + ".weight"))
      continue;
    fail_unsupported(kChannels, concat("The layers ", group.conv, " and ", group.next,
                                       " are no longer plain convolutions."));
  }
  const std::vector<Tensor> scores = channel_scores(model, groups, options);
  const std::vector<Index> counts = kept_counts(scores, options);
  const at::NoGradGuard no_grad;
  PrunedResNet out;
  VisionSpec spec = model->spec();
  spec.inner_widths = counts;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& [conv, norm, next] = groups[i];
    const Tensor kept = largest(scores[i], counts[i]);
    const auto select = [&](const std::string& name, Index axis) {
      Tensor& tensor = tensors.at(name);
      tensor = tensor.index_select(axis, kept.to(tensor.device()));
    };
    select(conv + ".weight", 0);
    for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"}) {
      select(norm + part, 0);
    }
    select(next + ".weight", 1);
    const auto* const first = kept.data_ptr<std::int64_t>();
    out.layers.push_back({conv, scores[i].numel(), {first, first + kept.numel()}});
  }
  out.net = ResNet(spec, [&](const TensorRequest& request) {
    return tensors.at(request.name).detach().clone();
  });
  out.net->train(model->is_training());
  const auto count = [](const ResNet& net) {
    Index sum = 0;
    for (const Tensor& parameter : net->parameters()) sum += parameter.numel();
    return sum;
  };
  out.parameters_before = count(model);
  out.parameters_after = count(out.net);
  return out;
}

}  // namespace hone::nn
