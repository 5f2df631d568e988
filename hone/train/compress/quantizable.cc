// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/quantizable.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/rnn.h>

#include <memory>
#include <set>
#include <typeinfo>
#include <utility>

#include "hone/train/compress/quantized_conv.h"
#include "hone/train/compress/recurrent.h"
#include "hone/train/nn/fused_conv.h"
#include "hone/train/nn/linear.h"
#include "hone/train/surgery/layer_surgery.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::nn::AnyModule;

constexpr const char* kNoPlace =
    "It is neither in a Sequential nor in a Slot, so that nothing can take its place.";

Tensor matrix_of(const Tensor& weight) {
  return weight.detach().to(at::kCPU, at::kFloat).contiguous();
}

Index parameter_bytes(const torch::nn::Module& module) {
  Index sum = 0;
  for (const Tensor& parameter : module.parameters()) sum += static_cast<Index>(parameter.nbytes());
  return sum;
}

// The functions of a layer that replace() exchanges.
void connect(QuantizableLayer& out, torch::nn::Module& model, const Layer& layer,
             std::function<AnyModule(StoredWeight)> make) {
  AnyModule old = content_of(layer);
  out.forward = [old](const Tensor& x) mutable { return old.forward(x); };
  out.fastest = out.forward;
  const torch::Device device = layer.module->parameters().front().device();
  out.apply = [&model, path = out.path, device, make](std::vector<StoredWeight> weights) {
    AnyModule fresh = make(std::move(weights.at(0)));
    fresh.ptr()->to(device);
    replace(model, path, fresh);
  };
  out.undo = [&model, path = out.path, old] { replace(model, path, old); };
}

QuantizableLayer of_linear(torch::nn::Module& model, const Layer& layer,
                           const torch::nn::LinearImpl& linear) {
  QuantizableLayer out{.path = layer.path, .type = "Linear"};
  out.weights = {{"weight", matrix_of(linear.weight)}};
  out.inputs_of = [in = linear.weight.size(1)](const Tensor& x) {
    return x.detach().to(at::kCPU, at::kFloat).reshape({-1, in}).contiguous();
  };
  if (!is_replaceable(layer)) {
    out.obstacle = kNoPlace;
    return out;
  }
  connect(out, model, layer, [bias = linear.bias](StoredWeight weight) {
    return AnyModule(QuantizedLinear(std::move(weight), bias));
  });
  return out;
}

QuantizableLayer of_conv(torch::nn::Module& model, const Layer& layer,
                         const torch::nn::Conv2dImpl& conv) {
  QuantizableLayer out{.path = layer.path, .type = "Conv2d"};
  out.weights = {{"weight", matrix_of(conv_matrix(conv.weight))}};
  out.obstacle = is_replaceable(layer) ? obstacle_to_fusing(conv) : kNoPlace;
  if (!out.obstacle.empty()) return out;
  QuantizedConv2dOptions options{.in_channels = conv.options.in_channels(),
                                 .out_channels = conv.options.out_channels(),
                                 .kernel = {conv.weight.size(2), conv.weight.size(3)},
                                 .geometry = conv_geometry(conv)};
  if (options.geometry.groups == 1) {
    out.inputs_of = [options](const Tensor& x) {
      return conv_patches(x.detach().to(at::kCPU), options);
    };
  }
  connect(out, model, layer, [bias = conv.bias, options](StoredWeight weight) {
    return AnyModule(QuantizedConv2d(std::move(weight), bias, options));
  });
  // In which batch normalization is folded, too.
  FusedConv2d fused(FoldedConv{conv.weight, conv.bias},
                    FusedConv2dOptions{.geometry = options.geometry});
  out.fastest = [fused](const Tensor& x) mutable { return fused->forward(x); };
  return out;
}

// torch::nn::LSTM or torch::nn::GRU.
template <class Impl>
QuantizableLayer of_recurrent(const Layer& layer, const Impl& module, std::string type) {
  QuantizableLayer out{.path = layer.path, .type = std::move(type)};
  const auto parameters = module.named_parameters(false);
  for (const auto& item : parameters) {
    if (item.key().starts_with("weight_")) out.weights.push_back({item.key(), matrix_of(*item)});
  }
  auto* const slot = dynamic_cast<RecurrentSlotImpl*>(layer.holder);
  out.obstacle = obstacle_to_quantizing(module.options_base);
  if (slot == nullptr) {
    out.obstacle = concat("Nothing can take its place, because it is not held by an nn::",
                          out.type == "LSTM" ? "Lstm" : "Gru", "Slot.");
  }
  if (!out.obstacle.empty()) return out;
  const RecurrentOptions options = recurrent_options(module.options_base);
  out.apply = [slot, options, parameters](std::vector<StoredWeight> weights) {
    std::vector<QuantizedRecurrentImpl::Direction> directions;
    // Weights and biases of each direction follow each other in LibTorch's order.
    const auto items = parameters.items();
    const std::size_t each = options.bias ? 4 : 2;
    for (std::size_t i = 0; i + 1 < weights.size(); i += 2) {
      QuantizedRecurrentImpl::Direction direction{
          std::move(weights[i]), std::move(weights[i + 1]), {}, {}};
      if (options.bias) {
        direction.input_bias = items[i / 2 * each + 2].value();
        direction.hidden_bias = items[i / 2 * each + 3].value();
      }
      directions.push_back(std::move(direction));
    }
    QuantizedRecurrent fresh(std::move(directions), options);
    fresh->to(items.front().value().device());
    slot->set_quantized(fresh);
  };
  out.undo = [slot] { slot->set_quantized(QuantizedRecurrent(nullptr)); };
  return out;
}

}  // namespace

std::vector<QuantizableLayer> quantizable_layers(torch::nn::Module& model) {
  std::vector<QuantizableLayer> out;
  std::set<const torch::nn::Module*> seen;
  for (const Layer& layer : layers_of(model)) {
    torch::nn::Module& module = *layer.module;
    if (!seen.insert(&module).second) continue;
    if (const auto* const linear = exact_linear(module)) {
      out.push_back(of_linear(model, layer, *linear));
    } else if (typeid(module) == typeid(torch::nn::Conv2dImpl)) {
      out.push_back(of_conv(model, layer, dynamic_cast<const torch::nn::Conv2dImpl&>(module)));
    } else if (const auto* const lstm = module.as<torch::nn::LSTMImpl>()) {
      out.push_back(of_recurrent(layer, *lstm, "LSTM"));
    } else if (const auto* const gru = module.as<torch::nn::GRUImpl>()) {
      out.push_back(of_recurrent(layer, *gru, "GRU"));
    } else {
      continue;
    }
    out.back().bytes = parameter_bytes(module);
  }
  return out;
}

std::vector<QuantizedPlace> quantized_layers(torch::nn::Module& model) {
  std::vector<QuantizedPlace> out;
  std::set<const torch::nn::Module*> seen;
  for (const Layer& layer : layers_of(model)) {
    auto* const quantized = dynamic_cast<QuantizedLayer*>(layer.module.get());
    if (quantized != nullptr && seen.insert(layer.module.get()).second) {
      out.push_back({layer.path, quantized});
    }
  }
  return out;
}

}  // namespace hone::nn
