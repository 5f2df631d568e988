// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"
#include "hone/kernels/attention/linear_attention.h"

namespace hone::nn {

using kernels::FeatureKind;

struct LinearAttentionOptions {
  FeatureKind kind = FeatureKind::Softmax;
  bool causal = false;
  // Added to every feature. Softmax with eps must not be causal: eps is added to features relative
  // to the largest one of the query, or of all keys of the head (Performers, Choromanski et al.).
  // Causal attention has no such maximum without looking ahead.
  double eps = 0;
};

// Which tokens attend and are attended to, bool, true = attend; undefined: all.
struct LinearAttentionMasks {
  torch::Tensor keys;     // [batch, keys]
  torch::Tensor queries;  // [batch, queries]
};

// What causal attention remembers of earlier tokens; see kernels::LinearAttentionArgs. Save these
// tensors to save the state. They are f32, or f64 with f64 queries.
struct LinearAttentionState {
  torch::Tensor z;             // [batch, heads, v_dim + 1, features]
  torch::Tensor max_exponent;  // [batch, heads]
  Index position = 0;          // number of earlier tokens
  // Number of the layer's draw that gave these features; 0: unknown.
  std::uint32_t draws = 0;

  bool defined() const { return z.defined(); }
  LinearAttentionState clone() const;
};

// Attention by random features as defined by kernels::LinearAttentionArgs. q is [batch, queries,
// heads, qk_dim], k [batch, keys, heads, qk_dim], v [batch, keys, heads, v_dim], and omega
// [features, qk_dim], which gets no gradient. Returns [batch, queries, heads, v_dim] in the type of
// q.
//
// f32, f16 and bf16 on the CPU use hone's kernels in f32, which have no second derivative. All
// others, and softmax with eps, use the operators of composed. Neither uses the type of an autocast
// scope. With a state, continues after the tokens that the state has seen (none if undefined), and
// updates the state. Then masks are for the new tokens, and there is no gradient.
//
// Throws Error{InvalidArgument} for other shapes, types, masks and states, eps below 0, not finite
// or with causal softmax, and a state without causal.
torch::Tensor linear_attention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const torch::Tensor& omega,
                               const LinearAttentionOptions& options,
                               const LinearAttentionMasks& masks = {},
                               LinearAttentionState* state = nullptr);

// The norms of the rows of omega.
enum class FeatureNorm {
  Chi,   // like rows of a Gaussian matrix, so that features are unbiased
  Root,  // sqrt(dim), their root mean square
};

// Returns omega [features, dim] in f64: blocks of `dim` orthogonal rows (fewer in the last),
// uniformly distributed ("Orthogonal random features", Yu et al., arXiv 1610.09072). A pure
// function of its arguments, from the Philox generator. Different values of `draw` are independent.
// Throws Error{InvalidArgument} for sizes below 1.
torch::Tensor orthogonal_features(Index features, Index dim, FeatureNorm norm, std::uint64_t seed,
                                  std::uint32_t draw);

// A seed for one of several uses of a seed.
std::uint64_t derived_seed(std::uint64_t seed, std::uint32_t layer, std::uint32_t use);

namespace composed {
// Like nn::linear_attention(), by LibTorch's operators, in f64 for f64, otherwise in f32, and with
// a gradient also if there is a state. Causal attention runs over chunks of `chunk` tokens.
torch::Tensor linear_attention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const torch::Tensor& omega,
                               const LinearAttentionOptions& options,
                               const LinearAttentionMasks& masks = {},
                               LinearAttentionState* state = nullptr, Index chunk = 64);
}  // namespace composed

}  // namespace hone::nn
