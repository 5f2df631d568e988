// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "hone/train/compress/quantize.h"
#include "hone/train/compress/quantized_conv.h"

// Trains weights that will be stored in 2 to 8 bits (Esser et al., "Learned step size
// quantization", 2020).
namespace hone::nn {

// step · round(clamp(weight / step, −2^(bits−1), 2^(bits−1) − 1)), rounded half to even, for a
// weight [out, …] and a step [out] for each output. The gradient passes to weights inside of the
// range, and to the step: round(v) − v inside of it and the bound outside, v = weight / step,
// summed over the output and divided by √(n · (2^(bits−1) − 1)) for its n weights. Steps below
// 1e-12 count as that.
torch::Tensor fake_quantize(const torch::Tensor& weight, const torch::Tensor& step, int bits);

// The step that a training begins with, 2 · mean |w| / √(2^(bits−1) − 1) of each output.
torch::Tensor initial_step(const torch::Tensor& weight, int bits);

// A layer that computes with fake_quantize() of its weight.
class FakeQuantizedLayer {
 public:
  virtual ~FakeQuantizedLayer() = default;
  // The layer with the weight in codes "intN:row", whose decoded weight has the bits of this one's.
  virtual torch::nn::AnyModule converted(bool act_int8) const = 0;
};

// x [..., in] -> x · fake_quantize(weight)ᵀ + bias. Its parameters are weight, bias, which may be
// undefined, and step.
class LsqLinearImpl final : public torch::nn::Cloneable<LsqLinearImpl>, public FakeQuantizedLayer {
 public:
  // Shares weight and bias of the layer.
  LsqLinearImpl(const torch::nn::LinearImpl& layer, int bits);

  torch::Tensor forward(const torch::Tensor& x);
  torch::nn::AnyModule converted(bool act_int8) const override;
  void reset() override;

  torch::Tensor weight, bias, step;

 private:
  int bits_;
};
TORCH_MODULE(LsqLinear);

// The same for a convolution that is padded with zeros.
class LsqConv2dImpl final : public torch::nn::Cloneable<LsqConv2dImpl>, public FakeQuantizedLayer {
 public:
  LsqConv2dImpl(const torch::nn::Conv2dImpl& layer, int bits);

  torch::Tensor forward(const torch::Tensor& x);
  torch::nn::AnyModule converted(bool act_int8) const override;
  void reset() override;

  torch::Tensor weight, bias, step;

 private:
  QuantizedConv2dOptions options_;
  int bits_;
};
TORCH_MODULE(LsqConv2d);

struct QatOptions {
  int bits = 4;  // 2 to 8
  // "PATTERN=BITS" for layers whose path matches a pattern of LayerSelector; the last one that
  // matches wins. "PATTERN=float" leaves layers alone.
  std::vector<std::string> layers = {};
};

struct QatLayerRecord {
  std::string path, type;
  CompressionStatus status = CompressionStatus::Skipped;
  std::string reason = {};  // one sentence
  int bits = 0;
};

// Replaces each linear layer and convolution that replace() can exchange by one that trains its
// steps. Make the optimizer afterwards, because the steps are new parameters. Throws
// Error{InvalidArgument} for bits out of range and patterns without a layer, before anything is
// changed.
std::vector<QatLayerRecord> prepare_qat(torch::nn::Module& model, const QatOptions& options = {});

// Replaces these layers by quantized ones. dequantize() then gives layers that compute, bit for
// bit, what the trained ones computed. Returns how many.
Index convert_qat(torch::nn::Module& model, bool act_int8 = true);

}  // namespace hone::nn
