// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "hone/train/nn/ops.h"

namespace hone::nn::composed {

std::pair<torch::Tensor, torch::Tensor> add_rms_norm(const torch::Tensor& x,
                                                     const torch::Tensor& delta,
                                                     const torch::Tensor& weight, double eps) {
  const torch::Tensor sum = delta.defined() ? x + delta : x;
  const torch::Tensor inverse = at::rsqrt(sum.pow(2).mean(-1, /*keepdim=*/true) + eps);
  return {sum, sum * inverse * weight};
}

torch::Tensor swiglu(const torch::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

torch::Tensor causal_attention(const torch::Tensor& qkv, const RopeTable& rope,
                               const HeadLayout& layout) {
  const Index batch = qkv.size(0), positions = qkv.size(1), half = layout.head_dim / 2;
  const auto parts = qkv.view({batch, positions, -1, layout.head_dim})
                         .transpose(1, 2)
                         .split_with_sizes({layout.heads, layout.kv_heads, layout.kv_heads}, 1);
  const torch::Tensor cos = rope.cos.narrow(0, 0, positions).to(qkv.scalar_type());
  const torch::Tensor sin = rope.sin.narrow(0, 0, positions).to(qkv.scalar_type());
  const auto turn = [&](const torch::Tensor& x) {
    const torch::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
  };
  const torch::Tensor out = at::scaled_dot_product_attention(
      turn(parts[0]), turn(parts[1]), parts[2], /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true, /*scale=*/std::nullopt, /*enable_gqa=*/layout.heads != layout.kv_heads);
  return out.transpose(1, 2).reshape({batch, positions, layout.heads * layout.head_dim});
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
