// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/pimpl.h>

#include "hone/core/index.h"
#include "hone/train/surgery/fusion_site.h"

namespace hone::nn {

struct SelfAttentionOptions {
  Index dim = 0, heads = 1;
  Index kv_heads = 0;  // groups of heads / kv_heads query heads share keys and values; 0: heads
  bool bias = true;
  bool causal = false;  // a position sees itself and earlier ones only
};

// Self-attention of x [batch, positions, dim] with its projections: softmax(q·kᵀ/√head_dim)·v by
// head, merged, then projected. Parameters "in_proj_weight" [(heads + 2 kv_heads)·head_dim, dim],
// "in_proj_bias", "out_proj_weight" [dim, dim] and "out_proj_bias".
//
// Throws Error{InvalidArgument} for heads that do not divide dim, or kv_heads that do not divide
// heads.
class SelfAttentionImpl final : public torch::nn::Cloneable<SelfAttentionImpl>, public Fusible {
 public:
  explicit SelfAttentionImpl(const SelfAttentionOptions& options);
  // Shares the weights of a module that has neither a bias for keys nor another size of keys or
  // values. Its dropout is left out.
  SelfAttentionImpl(const torch::nn::MultiheadAttentionImpl& from, bool causal);

  // Computes scores, softmax and the product with v one after the other; if fused, in one operator
  // that keeps no scores. Both have gradients.
  torch::Tensor forward(const torch::Tensor& x) { return attend(x, is_fused_); }
  // Attention, merged heads and projection.
  std::vector<FusionSite> fusion_sites(const std::string& path) override;

  const SelfAttentionOptions& options() const { return options_; }
  void reset() override;

 private:
  torch::Tensor attend(const torch::Tensor& x, bool is_fused) const;

  SelfAttentionOptions options_;
  torch::Tensor in_weight_, in_bias_, out_weight_, out_bias_;
  bool is_fused_ = false;
};
TORCH_MODULE(SelfAttention);

}  // namespace hone::nn
