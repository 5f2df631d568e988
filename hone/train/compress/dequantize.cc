// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "hone/train/compress/quantizable.h"
#include "hone/train/compress/quantize.h"
#include "hone/train/compress/quantized_conv.h"
#include "hone/train/compress/recurrent.h"
#include "hone/train/surgery/layer_surgery.h"

namespace hone::nn {
namespace {

using torch::Tensor;

torch::nn::AnyModule float_linear(QuantizedLinearImpl& layer) {
  const Tensor weight = layer.stored_weights()[0].stored->decoded();
  torch::nn::Linear out(torch::nn::LinearOptions(1, 1).bias(layer.bias().defined()));
  out->options.in_features(weight.size(1)).out_features(weight.size(0));
  out->weight.set_data(weight);
  if (layer.bias().defined()) out->bias.set_data(layer.bias().clone());
  return torch::nn::AnyModule(out);
}

torch::nn::AnyModule float_conv(QuantizedConv2dImpl& layer) {
  const QuantizedConv2dOptions& from = layer.options();
  const auto pair = [](const std::array<Index, 2>& sizes) {
    return torch::ExpandingArray<2>({sizes[0], sizes[1]});
  };
  torch::nn::Conv2d out(torch::nn::Conv2dOptions(1, 1, 1).bias(layer.bias().defined()));
  out->options.in_channels(from.in_channels).out_channels(from.out_channels);
  out->options.kernel_size(pair(from.kernel)).stride(pair(from.geometry.stride));
  out->options.padding(pair(from.geometry.padding)).dilation(pair(from.geometry.dilation));
  out->options.groups(from.geometry.groups);
  const Tensor matrix = layer.stored_weights()[0].stored->decoded();
  out->weight.set_data(conv_weight(matrix, from).contiguous());
  if (layer.bias().defined()) out->bias.set_data(layer.bias().clone());
  return torch::nn::AnyModule(out);
}

// Writes the decoded weights into the LSTM or GRU that the slot kept, and puts it back.
void restore_recurrent(RecurrentSlotImpl& slot) {
  const QuantizedRecurrent quantized = slot.quantized();
  const auto original = slot.original();
  const at::NoGradGuard no_grad;
  auto parameters = original->named_parameters(false);
  for (const QuantizedLayer::Weight& weight : quantized.ptr()->stored_weights()) {
    parameters[weight.name].set_data(
        weight.stored->decoded().to(parameters[weight.name].options()));
  }
  const auto buffers = quantized->named_buffers(false);
  for (const auto& item : buffers) {
    if (item.key().starts_with("bias_")) parameters[item.key()].set_data(item.value().clone());
  }
  slot.set_quantized(QuantizedRecurrent(nullptr));
}

}  // namespace

Index dequantize(torch::nn::Module& model) {
  Index count = 0;
  for (const QuantizedPlace& place : quantized_layers(model)) {
    const Layer layer = find_layer(model, place.path);
    if (auto* const linear = dynamic_cast<QuantizedLinearImpl*>(place.layer)) {
      replace(model, place.path, float_linear(*linear));
    } else if (auto* const conv = dynamic_cast<QuantizedConv2dImpl*>(place.layer)) {
      replace(model, place.path, float_conv(*conv));
    } else {
      restore_recurrent(dynamic_cast<RecurrentSlotImpl&>(*layer.holder));
    }
    ++count;
  }
  return count;
}

}  // namespace hone::nn
