// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>

#include <optional>
#include <string>
#include <vector>

#include "hone/train/compress/stored_weight.h"

namespace hone::nn {

// A layer with weights that quantize() has made.
class QuantizedLayer {
 public:
  struct Weight {
    std::string name;  // "weight", "weight_ih_l0"
    StoredWeight* stored;
  };

  virtual ~QuantizedLayer() = default;
  virtual std::vector<Weight> stored_weights() = 0;
  virtual void set_product(ProductKind kind) = 0;
  virtual ProductKind product() const = 0;
};

// x [..., in] -> x · Wᵀ + bias [..., out] for inference, with a weight in few bits and a bias of
// f32 that may be undefined. Both are buffers, so that optimizers ignore them. Gradients flow to x.
class QuantizedLinearImpl final : public KeepsTypes<QuantizedLinearImpl>, public QuantizedLayer {
 public:
  QuantizedLinearImpl(StoredWeight weight, const torch::Tensor& bias);

  torch::Tensor forward(const torch::Tensor& x);

  const torch::Tensor& bias() const { return bias_; }
  std::vector<Weight> stored_weights() override { return {{"weight", &weight_}}; }
  void set_product(ProductKind kind) override { product_ = kind; }
  ProductKind product() const override { return product_; }
  void reset() override;

 private:
  StoredWeight weight_;
  torch::Tensor bias_;
  ProductKind product_ = ProductKind::Packed;
};
TORCH_MODULE(QuantizedLinear);

}  // namespace hone::nn
