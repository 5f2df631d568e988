// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/qat.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <typeinfo>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/interop.h"
#include "hone/train/nn/fused_conv.h"
#include "hone/train/nn/linear.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/layer_surgery.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::nn::AnyModule;

constexpr std::string_view kQat = "qat";
constexpr double kLeastStep = 1e-12;

double lowest(std::int64_t bits) { return -std::exp2(bits - 1); }
double highest(std::int64_t bits) { return std::exp2(bits - 1) - 1; }

// [out] as [out, 1, …] beside a weight.
Tensor beside(const Tensor& step, const Tensor& weight) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(weight.dim()), 1);
  sizes[0] = -1;
  return step.clamp_min(kLeastStep).view(sizes);
}

// The codes of a weight, as numbers.
Tensor codes_of(const Tensor& weight, const Tensor& step, std::int64_t bits) {
  return (weight / beside(step, weight)).clamp(lowest(bits), highest(bits)).round();
}

struct LsqFunction : torch::autograd::Function<LsqFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& step,
                        std::int64_t bits) {
    context->save_for_backward({weight, step});
    context->saved_data["bits"] = bits;
    return codes_of(weight, step, bits) * beside(step, weight);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &weight = saved[0], &step = saved[1], &grad = grads[0];
    const std::int64_t bits = context->saved_data["bits"].toInt();
    const Tensor v = weight / beside(step, weight);
    const Tensor inside = v.ge(lowest(bits)).logical_and(v.le(highest(bits)));
    const Tensor clamped = v.clamp(lowest(bits), highest(bits));
    const Tensor by_step = at::where(inside, v.round() - v, clamped);
    const auto weights = static_cast<double>(weight.numel() / weight.size(0));
    const double scale = 1 / std::sqrt(weights * highest(bits));
    return {grad * inside, (grad * by_step).flatten(1).sum(1) * scale, Tensor()};
  }
};

// The matrix [out, columns] in codes. Its bytes are copied.
StoredWeight store_codes(const Tensor& matrix, const Tensor& step, int bits, bool act_int8) {
  const at::NoGradGuard no_grad;
  const auto cpu = [](const Tensor& tensor) {
    return tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  };
  const Tensor values = codes_of(cpu(matrix), cpu(step), bits)
                            .to(at::kInt)
                            .bitwise_and((1 << bits) - 1)
                            .to(at::kByte)
                            .contiguous();
  const Tensor scales = cpu(step).clamp_min(kLeastStep).contiguous();
  const QuantSpec spec{.bits = bits, .span = ScaleSpan::Row};
  const Index rows = matrix.size(0), cols = matrix.size(1);
  const auto row_bytes = static_cast<std::size_t>(spec.code_bytes_per_row(cols));
  std::vector<std::byte> codes(static_cast<std::size_t>(rows) * row_bytes);
  for (Index row = 0; row < rows; ++row) {
    pack_codes({values.data_ptr<std::uint8_t>() + row * cols, static_cast<std::size_t>(cols)}, bits,
               std::span(codes).subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes));
  }
  StoredMatrix stored;
  stored.layout = WeightLayout::Canonical;
  stored.rows = rows;
  stored.cols = cols;
  stored.act_int8 = act_int8;
  stored.quant = {.spec = spec,
                  .rows = rows,
                  .cols = cols,
                  .codes = codes,
                  .scales = tensor_bytes(scales),
                  .zeros = {}};
  return StoredWeight(stored);
}

// The parameters of a layer, of which the first two are shared with the layer before it.
struct Shared {
  Tensor weight, bias, step;
};
template <class Layer>
Shared register_shared(torch::nn::Module& owner, const Layer& layer, int bits) {
  Shared out;
  out.weight = owner.register_parameter("weight", layer.weight, layer.weight.requires_grad());
  if (layer.bias.defined()) {
    out.bias = owner.register_parameter("bias", layer.bias, layer.bias.requires_grad());
  }
  out.step = owner.register_parameter("step", initial_step(layer.weight, bits));
  return out;
}

template <class Layer>
void reset_shared(Layer& layer) {
  for (auto [name, tensor] :
       {std::pair{"weight", &layer.weight}, {"bias", &layer.bias}, {"step", &layer.step}}) {
    if (!tensor->defined()) continue;
    *tensor =
        layer.register_parameter(name, at::zeros_like(tensor->detach()), tensor->requires_grad());
  }
}

int parse_bits(std::string_view text) {
  int bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits);
  HONE_CHECK(error == std::errc() && end == text.data() + text.size() && bits >= 2 && bits <= 8,
             kQat, "2 to 8 bits, or float", text);
  return bits;
}

// The bits of each layer; 0 for those that stay as they are.
std::map<std::string, int> choose_bits(torch::nn::Module& model, const QatOptions& options) {
  HONE_CHECK(options.bits >= 2 && options.bits <= 8, kQat, "2 to 8 bits", options.bits);
  std::map<std::string, int> out;
  for (const Layer& layer : layers_of(model)) out[layer.path] = options.bits;
  for (const std::string& entry : options.layers) {
    const std::size_t equals = entry.rfind('=');
    HONE_CHECK(equals != std::string::npos && equals > 0, kQat, "PATTERN=BITS", entry);
    const std::string text = entry.substr(equals + 1);
    const int bits = text == "float" ? 0 : parse_bits(text);
    for (const Layer& layer : select_layers(model, {.pattern = {entry.substr(0, equals)}})) {
      out[layer.path] = bits;
    }
  }
  return out;
}

}  // namespace

Tensor fake_quantize(const Tensor& weight, const Tensor& step, int bits) {
  HONE_CHECK(bits >= 2 && bits <= 8, kQat, "2 to 8 bits", bits);
  HONE_CHECK(weight.dim() >= 1 && step.sizes().equals({weight.size(0)}), kQat,
             concat("a step for each of the ", weight.dim() == 0 ? 0 : weight.size(0), " outputs"),
             c10::str(step.sizes()));
  return LsqFunction::apply(weight, step, std::int64_t{bits});
}

Tensor initial_step(const Tensor& weight, int bits) {
  const at::NoGradGuard no_grad;
  return weight.detach().flatten(1).abs().mean(1) * (2 / std::sqrt(highest(bits)));
}

LsqLinearImpl::LsqLinearImpl(const torch::nn::LinearImpl& layer, int bits) : bits_(bits) {
  const Shared shared = register_shared(*this, layer, bits);
  weight = shared.weight;
  bias = shared.bias;
  step = shared.step;
}

void LsqLinearImpl::reset() { reset_shared(*this); }

Tensor LsqLinearImpl::forward(const Tensor& x) {
  return at::linear(x, fake_quantize(weight, step, bits_),
                    bias.defined() ? std::optional(bias) : std::nullopt);
}

AnyModule LsqLinearImpl::converted(bool act_int8) const {
  return AnyModule(QuantizedLinear(store_codes(weight, step, bits_, act_int8), bias));
}

LsqConv2dImpl::LsqConv2dImpl(const torch::nn::Conv2dImpl& layer, int bits)
    : options_{.in_channels = layer.options.in_channels(),
               .out_channels = layer.options.out_channels(),
               .kernel = {layer.weight.size(2), layer.weight.size(3)},
               .geometry = conv_geometry(layer)},
      bits_(bits) {
  const Shared shared = register_shared(*this, layer, bits);
  weight = shared.weight;
  bias = shared.bias;
  step = shared.step;
}

void LsqConv2dImpl::reset() { reset_shared(*this); }

Tensor LsqConv2dImpl::forward(const Tensor& x) {
  const auto& [stride, padding, dilation, groups] = options_.geometry;
  return at::conv2d(x, fake_quantize(weight, step, bits_),
                    bias.defined() ? std::optional(bias) : std::nullopt, stride, padding, dilation,
                    groups);
}

AnyModule LsqConv2dImpl::converted(bool act_int8) const {
  return AnyModule(
      QuantizedConv2d(store_codes(conv_matrix(weight), step, bits_, act_int8), bias, options_));
}

std::vector<QatLayerRecord> prepare_qat(torch::nn::Module& model, const QatOptions& options) {
  const std::map<std::string, int> bits = choose_bits(model, options);
  std::vector<QatLayerRecord> out;
  std::set<const torch::nn::Module*> seen;
  for (const Layer& layer : layers_of(model)) {
    const auto* const linear = exact_linear(*layer.module);
    const bool is_conv = typeid(*layer.module) == typeid(torch::nn::Conv2dImpl);
    if ((linear == nullptr && !is_conv) || !seen.insert(layer.module.get()).second) continue;
    const auto* const conv = layer.module->as<torch::nn::Conv2dImpl>();
    QatLayerRecord record{.path = layer.path, .type = is_conv ? "Conv2d" : "Linear"};
    record.bits = bits.at(layer.path);
    if (record.bits == 0) {
      record.reason = "It stays in floating point.";
    } else if (!is_replaceable(layer)) {
      record.reason =
          "It is neither in a Sequential nor in a Slot, so that nothing can take its "
          "place.";
    } else if (is_conv) {
      record.reason = obstacle_to_fusing(*conv);
    }
    if (record.reason.empty()) {
      try {
        replace(model, layer.path,
                is_conv ? AnyModule(LsqConv2d(*conv, record.bits))
                        : AnyModule(LsqLinear(*linear, record.bits)));
        record.status = CompressionStatus::Applied;
        record.reason = "It trains its steps.";
      } catch (const Error& error) {
        record.reason = error.what();
      }
    }
    out.push_back(std::move(record));
  }
  return out;
}

Index convert_qat(torch::nn::Module& model, bool act_int8) {
  Index count = 0;
  std::set<const torch::nn::Module*> seen;
  for (const Layer& layer : layers_of(model)) {
    const auto* const fake = dynamic_cast<const FakeQuantizedLayer*>(layer.module.get());
    if (fake == nullptr || !seen.insert(layer.module.get()).second) continue;
    const torch::Device device = layer.module->parameters().front().device();
    AnyModule converted = fake->converted(act_int8);
    converted.ptr()->to(device);
    replace(model, layer.path, converted);
    ++count;
  }
  return count;
}

}  // namespace hone::nn
