// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <optional>

#include "hone/train/sketch/counter.h"
#include "hone/train/sketch/linear_attention.h"
#include "hone/train/sketch/stochastic_position.h"

namespace hone::nn {

struct RandomFeatureAttentionOptions {
  Index embed_dim = 0, heads = 1, features = 256;
  FeatureKind kind = FeatureKind::Softmax;
  FeatureNorm norm = FeatureNorm::Chi;
  bool causal = false;
  bool bias = true;
  double dropout = 0;  // on the output of attention, before the output projection; in [0, 1)
  double eps = 0;      // see LinearAttentionOptions
  // Stochastic sinusoidal positions with that many sines and realizations; 0 sines: none.
  Index position_sines = 0, position_realizations = 256;
  // Layers with a different `seed` or `layer` have independent weights, features and noise.
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
};

// Which queries attend to which keys, bool, true = attend; undefined: all. `pairs` [queries, keys]
// or [batch, queries, keys] must be an outer product of a mask of queries and a mask of keys,
// because no other mask has linear time. With causal, this applies on and below the diagonal.
struct AttentionMasks {
  torch::Tensor keys = {};     // [batch, keys]
  torch::Tensor queries = {};  // [batch, queries]; the attention of others is 0
  torch::Tensor pairs = {};
};

// Multi-head attention in linear time: torch::nn::MultiheadAttention with linear_attention()
// instead of the softmax. Weights start as Xavier uniform for each projection, biases as 0. Uses
// LibTorch's generators only for dropout.
class RandomFeatureAttentionImpl : public CountedModule<RandomFeatureAttentionImpl> {
 public:
  // Throws Error{InvalidArgument} for sizes below 1, heads that do not divide embed_dim, dropout
  // outside [0, 1), and like linear_attention().
  explicit RandomFeatureAttentionImpl(const RandomFeatureAttentionOptions& options);
  void reset() override;

  // Maps query [batch, queries, embed_dim] and key and value [batch, keys, embed_dim] to [batch,
  // queries, embed_dim].
  torch::Tensor forward(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value, const AttentionMasks& masks = {});
  // Self-attention of new tokens x [batch, tokens, embed_dim] after those that the state has seen,
  // without dropout and gradient: decoding in constant time per token. Causal layers only. Throws
  // Error{InvalidArgument} for a state with features from before redraw().
  torch::Tensor forward_step(const torch::Tensor& x, LinearAttentionState& state);
  // Draws new features, and new noise of positions.
  void redraw();

  RandomFeatureAttentionOptions options;
  torch::Tensor in_proj_weight, in_proj_bias;    // [3 embed_dim, embed_dim]: query, key, value
  torch::Tensor out_proj_weight, out_proj_bias;  // biases are undefined without bias
  torch::Tensor omega;                           // buffer [features, width of a query]
  torch::Tensor draws;                           // buffer, a counter: how often omega was drawn
  StochasticPosition position{nullptr};

 private:
  struct Heads {
    torch::Tensor q, k, v;
  };
  Heads project(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                Index first);
  torch::Tensor project_out(const torch::Tensor& heads) const;
};
TORCH_MODULE(RandomFeatureAttention);

// Returns a layer with copies of the weights of `attention`, in their type and on their device,
// with its requires_grad and training flags. embed_dim, heads, dropout and bias of `options` are
// replaced by its own. Throws Error{Unsupported} if keys or values have another width, or if
// bias_k, bias_v or add_zero_attn are in use, and Error{InvalidArgument} for NaN and infinity.
RandomFeatureAttention from_multihead(const torch::nn::MultiheadAttention& attention,
                                      RandomFeatureAttentionOptions options);

}  // namespace hone::nn
