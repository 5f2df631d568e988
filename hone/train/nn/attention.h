// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"

namespace hone::nn {

struct RopeTable {
  torch::Tensor cos, sin;  // [context, head_dim/2]
};
struct HeadLayout {
  Index heads = 0, kv_heads = 0, head_dim = 0;
  Index width() const { return (heads + 2 * kv_heads) * head_dim; }
};
// Differences from Llama in some model families. The defaults are for Llama.
struct AttentionTraits {
  // Weights of RMS norms of q and k before RoPE: [head_dim] of each head, or [heads·head_dim] of
  // all heads of a position together; undefined: no norm.
  torch::Tensor q_norm = {}, k_norm = {};
  double norm_eps = 1e-6;
  double scale = 0;         // factor of the scores; 0: 1/√head_dim
  torch::Tensor mask = {};  // from window_mask(); undefined: a position sees all earlier ones
};

// Causal attention with half-split RoPE from position 0. Maps qkv [batch, positions, heads q |
// kv_heads k | kv_heads v], before norms and RoPE, to [batch, positions, heads·head_dim]. f32
// tensors on the CPU use hone's kernels and LibTorch's flash attention. All others use the composed
// operators below, which are also the reference for tests.
torch::Tensor causal_attention(const torch::Tensor& qkv, const RopeTable& rope,
                               const HeadLayout& layout, const AttentionTraits& traits = {});

// Returns a mask [positions, positions] to add to scores, f32 on the device of `options`: 0 for a
// position itself and the window - 1 positions before it, -infinity elsewhere.
torch::Tensor window_mask(Index positions, Index window, const torch::TensorOptions& options);

namespace composed {
torch::Tensor causal_attention(const torch::Tensor& qkv, const RopeTable& rope,
                               const HeadLayout& layout, const AttentionTraits& traits = {});
}  // namespace composed

}  // namespace hone::nn
