// SPDX-License-Identifier: Apache-2.0
#include "hone/train/fuse/fusion_patterns.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <typeinfo>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/nn/fused_conv.h"
#include "hone/train/nn/fused_linear.h"
#include "hone/train/nn/linear.h"
#include "hone/train/surgery/layer_surgery.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::nn::AnyModule;
using torch::nn::Module;

// Null unless the layer is of this very class: a subclass may compute something else.
template <class Impl>
Impl* exactly(const Layer& layer) {
  return typeid(*layer.module) == typeid(Impl) ? layer.module->as<Impl>() : nullptr;
}

struct NamedActivation {
  Activation kind = Activation::None;
  std::string name;
};
std::optional<NamedActivation> activation_of(const Layer& layer) {
  if (exactly<torch::nn::ReLUImpl>(layer)) return {{Activation::Relu, "relu"}};
  if (exactly<torch::nn::SiLUImpl>(layer)) return {{Activation::Silu, "silu"}};
  if (exactly<torch::nn::SigmoidImpl>(layer)) return {{Activation::Sigmoid, "sigmoid"}};
  if (exactly<torch::nn::TanhImpl>(layer)) return {{Activation::Tanh, "tanh"}};
  const auto* const gelu = exactly<torch::nn::GELUImpl>(layer);
  if (gelu == nullptr) return std::nullopt;
  const bool by_tanh = gelu->options.approximate() == "tanh";
  return {{by_tanh ? Activation::GeluTanh : Activation::Gelu, "gelu"}};
}

// Layers that a Sequential calls one after the other.
using Row = std::vector<Layer>;

// Puts `fused` in the place of the first layer, and nothing in that of the others.
void bind_replacement(FusionSite& site, std::span<const Layer> layers, const AnyModule& fused) {
  site.operators = static_cast<Index>(layers.size());
  std::vector<AnyModule> separate;
  for (const Layer& layer : layers) {
    site.layers.push_back(layer.path);
    separate.push_back(content_of(layer));
  }
  site.separate = [chain = std::move(separate)](Tensor x) mutable {
    for (AnyModule& layer : chain) x = layer.forward(x);
    return x;
  };
  if (fused.is_empty()) return;
  site.fused = [fused = AnyModule(fused)](const Tensor& x) mutable { return fused.forward(x); };
  const auto old = std::make_shared<Snapshot>();
  site.apply = [old, fused, places = Row(layers.begin(), layers.end())] {
    old->places = {replace_place(places.front(), fused)};
    for (std::size_t i = 1; i < places.size(); ++i) {
      old->places.push_back(replace_place(places[i], AnyModule(torch::nn::Identity())));
    }
  };
  site.undo = [old] { restore(*old); };
}

std::optional<FusionSite> match_linear(std::span<const Layer> row) {
  const auto* const linear = exact_linear(*row[0].module);
  if (linear == nullptr || row.size() < 2) return std::nullopt;
  const auto activation = activation_of(row[1]);
  if (!activation) return std::nullopt;
  FusionSite site{.pattern = "linear_" + activation->name};
  bind_replacement(site, row.first(2), AnyModule(FusedLinear(*linear, activation->kind)));
  return site;
}

std::string obstacle_to_folding(const torch::nn::Conv2dImpl& conv,
                                const torch::nn::BatchNorm2dImpl& norm) {
  if (norm.is_training()) return "Batch normalization is folded in evaluation mode only.";
  if (!norm.running_mean.defined()) return "The normalization has no running statistics.";
  if (norm.options.num_features() != conv.options.out_channels()) {
    return "The normalization has another number of channels.";
  }
  if (norm.running_mean.device() != conv.weight.device()) return "The layers are on two devices.";
  return {};
}

std::optional<FusionSite> match_conv(std::span<const Layer> row) {
  const auto* const conv = exactly<torch::nn::Conv2dImpl>(row[0]);
  if (conv == nullptr || row.size() < 2) return std::nullopt;
  auto* const norm = exactly<torch::nn::BatchNorm2dImpl>(row[1]);
  const std::size_t next = norm == nullptr ? 1 : 2;
  const auto activation = next < row.size() ? activation_of(row[next]) : std::nullopt;
  if (norm == nullptr && !activation) return std::nullopt;
  FusionSite site{.pattern = concat("conv", norm == nullptr ? "" : "_bn",
                                    activation ? "_" + activation->name : ""),
                  .channels_last = true};
  site.obstacle = obstacle_to_fusing(*conv);
  if (site.obstacle.empty() && norm != nullptr) site.obstacle = obstacle_to_folding(*conv, *norm);
  if (site.obstacle.empty() && conv->is_training()) {
    site.obstacle = "A fused convolution is for evaluation mode only.";
  }
  const auto layers = row.first(next + (activation ? 1 : 0));
  AnyModule fused;
  if (site.obstacle.empty()) {
    const FoldedConv folded = norm == nullptr ? FoldedConv{conv->weight, conv->bias}
                                              : fold_batch_norm(conv->weight, conv->bias,
                                                                {.mean = norm->running_mean,
                                                                 .variance = norm->running_var,
                                                                 .scale = norm->weight,
                                                                 .shift = norm->bias,
                                                                 .eps = norm->options.eps()});
    fused = AnyModule(FusedConv2d(
        folded,
        FusedConv2dOptions{.geometry = conv_geometry(*conv),
                           .activation = activation ? activation->kind : Activation::None}));
  }
  bind_replacement(site, layers, fused);
  return site;
}

using Pattern = std::optional<FusionSite> (*)(std::span<const Layer> row);
constexpr Pattern kPatterns[] = {match_linear, match_conv};

void match_row(const Row& row, std::vector<FusionSite>& sites) {
  for (std::size_t i = 0; i < row.size();) {
    std::size_t step = 1;
    for (const Pattern pattern : kPatterns) {
      if (auto site = pattern(std::span(row).subspan(i))) {
        step = site->layers.size();
        sites.push_back(std::move(*site));
        break;
      }
    }
    i += step;
  }
}

}  // namespace

std::vector<FusionSite> fusion_sites(Module& model) {
  std::vector<FusionSite> sites;
  std::vector<Layer> layers = layers_of(model);
  std::set<const Module*> seen;
  const auto visit = [&](Module& module, const std::string& path) {
    if (!seen.insert(&module).second) return;
    if (module.as<torch::nn::SequentialImpl>() != nullptr) {
      Row row;
      for (const Layer& layer : layers) {
        if (layer.parent != &module) continue;
        if (is_replaceable(layer)) {
          row.push_back(layer);
        } else {  // what stays in its place separates its neighbors
          match_row(std::exchange(row, {}), sites);
        }
      }
      match_row(row, sites);
    }
    if (auto* const fusible = dynamic_cast<Fusible*>(&module)) {
      for (FusionSite& site : fusible->fusion_sites(path)) sites.push_back(std::move(site));
    }
  };
  visit(model, "");
  for (const Layer& layer : layers) visit(*layer.module, layer.path + ".");
  return sites;
}

}  // namespace hone::nn
