// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <optional>

#include "hone/train/nn/attention.h"
#include "hone/train/nn/ops.h"

namespace hone::nn::composed {

std::pair<torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                     const torch::Tensor& delta,
                                                     const torch::Tensor& weight, double eps) {
  const torch::Tensor sum = delta.defined() ? x + delta : x;
  const torch::Tensor inverse = at::rsqrt(sum.pow(2).mean(-1, /*keepdim=*/true) + eps);
  return {sum, sum * inverse * weight};
}

torch::Tensor glu(const torch::Tensor& gate_up, Gate gate) {
  const auto halves = gate_up.chunk(2, -1);
  return (gate == Gate::Silu ? at::silu(halves[0]) : at::gelu(halves[0], "tanh")) * halves[1];
}

torch::Tensor causal_attention(const torch::Tensor& qkv, const RopeTable& rope,
                               const HeadLayout& layout, const AttentionTraits& traits) {
  const Index batch = qkv.size(0), positions = qkv.size(1), head_dim = layout.head_dim;
  const Index half = head_dim / 2;
  const auto heads = [&](Index first, Index count, const torch::Tensor& norm) {
    torch::Tensor x = qkv.narrow(2, first * head_dim, count * head_dim);
    if (norm.defined()) {
      x = add_rms_norm(x.reshape({-1, norm.numel()}), {}, norm, traits.norm_eps).second;
    }
    return x.view({batch, positions, count, head_dim}).transpose(1, 2);
  };
  const torch::Tensor cos = rope.cos.narrow(0, 0, positions).to(qkv.scalar_type());
  const torch::Tensor sin = rope.sin.narrow(0, 0, positions).to(qkv.scalar_type());
  const auto turn = [&](const torch::Tensor& x) {
    const torch::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
  };
  std::optional<torch::Tensor> mask;
  if (traits.mask.defined()) mask = traits.mask.to(qkv.scalar_type());
  const torch::Tensor out = at::scaled_dot_product_attention(
      turn(heads(0, layout.heads, traits.q_norm)),
      turn(heads(layout.heads, layout.kv_heads, traits.k_norm)),
      heads(layout.heads + layout.kv_heads, layout.kv_heads, {}), mask, /*dropout_p=*/0.0,
      /*is_causal=*/!mask, traits.scale > 0 ? std::optional(traits.scale) : std::nullopt,
      /*enable_gqa=*/layout.heads != layout.kv_heads);
  return out.transpose(1, 2).reshape({batch, positions, layout.heads * head_dim});
}

torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& targets) {
  const torch::Tensor logits = at::linear(hidden, weight);
  // Maps targets below 0 to -1, the index that the operator ignores.
  return at::cross_entropy_loss(logits, targets.clamp_min(-1), /*weight=*/{}, at::Reduction::Sum,
                                /*ignore_index=*/-1)
      .to(torch::kDouble);
}

}  // namespace hone::nn::composed
