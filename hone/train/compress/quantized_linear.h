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
  void set_product(ProductKind kind) { product_ = kind; }
  ProductKind product() const { return product_; }

 private:
  ProductKind product_ = ProductKind::Packed;
};

// x [..., in] -> x · Wᵀ + bias [..., out] for inference, with a weight in few bits and a bias of
// f32 that may be undefined. Both are buffers, so that optimizers ignore them. Gradients flow to x.
class QuantizedLinearImpl final : public KeepsTypes<QuantizedLinearImpl>, public QuantizedLayer {
 public:
  QuantizedLinearImpl(StoredWeight weight, const torch::Tensor& bias);

  torch::Tensor forward(const torch::Tensor& x);

  const torch::Tensor& bias() const { return bias_; }
  std::vector<Weight> stored_weights() override { return {{"weight", &weight_}}; }
  void reset() override;

 private:
  StoredWeight weight_;
  torch::Tensor bias_;
};
TORCH_MODULE(QuantizedLinear);

}  // namespace hone::nn
