// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <array>
#include <memory>
#include <utility>

#include "hone/train/nn/keeps_types.h"
#include "hone/train/sketch/factored_linear.h"

namespace hone::nn {

enum class FrozenType {
  Float32,
  BFloat16,
  Int8,  // symmetric codes with an f32 scale for each 32 columns of a row
};

struct FrozenLinearOptions {
  Index in_features = 0, out_features = 0, rank = 0;
  FrozenType type = FrozenType::Float32;
  bool bias = true;
  Activation activation = Activation::None;
};

// A factored layer for inference: y = activation(B (A x) + bias) with A [rank, in] and B [out,
// rank] in few bits. All tensors are buffers (`a` and `b`, with Int8 also `a_scales` and
// `b_scales`; `bias`), so that optimizers ignore them and files contain them unchanged.
//
// f32 on the CPU without gradients uses the kernels of kernels/gemm, and activations stay f32 also
// under autocast. The kernels read bf16 and Int8 from a packed copy. The first call creates it, and
// so does the first call after a load. All else uses LibTorch's operators on the decoded factors,
// through which gradients flow to x.
class FrozenLinearImpl : public KeepsTypes<FrozenLinearImpl> {
 public:
  // Creates zeros, to load a file into. Throws Error{InvalidArgument} for sizes out of range.
  explicit FrozenLinearImpl(const FrozenLinearOptions& options);

  torch::Tensor forward(const torch::Tensor& x);
  // Returns A and B in f32, decoded.
  std::pair<torch::Tensor, torch::Tensor> factors() const;
  // Rounds these factors to the layer's type.
  void set_factors(const torch::Tensor& a, const torch::Tensor& b);
  const torch::Tensor& bias() const { return bias_; }

  LayerFacts facts() const;
  const FrozenLinearOptions& options() const { return options_; }
  void reset() override;

 private:
  // A matrix [rows, cols]: values, or codes [rows, cols in whole groups] and scales [rows, groups].
  struct Stored {
    torch::Tensor values, scales;
    Index cols = 0;
  };
  struct Packed;

  Stored register_matrix(const std::string& name, Index rows, Index cols);
  void round_to(Stored& stored, const torch::Tensor& matrix) const;
  torch::Tensor decode(const Stored& stored) const;
  torch::Tensor multiply_packed(const torch::Tensor& x);
  bool is_packed() const;

  FrozenLinearOptions options_;
  Stored a_, b_;
  torch::Tensor bias_;
  std::shared_ptr<const Packed> packed_;
};
TORCH_MODULE(FrozenLinear);

// The layer for inference, on the same device, without dropout.
FrozenLinear freeze(FactoredLinearImpl& layer, FrozenType type);

}  // namespace hone::nn
