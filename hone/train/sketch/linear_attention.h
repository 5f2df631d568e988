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
  // Added to every feature. For softmax without causal only: added where features are relative to
  // the largest one of the query, or of all keys of the head, as in the Performers of Choromanski
  // et al. Causal ones have no such number that does not look ahead.
  double eps = 0;
};

// Which tokens attend and are attended to, bool, true = attend; undefined: all.
struct LinearAttentionMasks {
  torch::Tensor keys;     // [batch, keys]
  torch::Tensor queries;  // [batch, queries]
};

// What causal attention remembers of the tokens before; see kernels::LinearAttentionArgs. The
// tensors are all there is to save, in f32, with f64 omega in f64.
struct LinearAttentionState {
  torch::Tensor z;             // [batch, heads, v_dim + 1, features]
  torch::Tensor max_exponent;  // [batch, heads]
  Index position = 0;          // tokens before
  // How often a layer drew the features whose sums these are; 0: unknown.
  std::uint32_t draws = 0;

  bool defined() const { return z.defined(); }
  LinearAttentionState clone() const;
};

// Attention by random features as kernels::LinearAttentionArgs defines it, of q [batch, queries,
// heads, qk_dim], k [batch, keys, heads, qk_dim] and v [batch, keys, heads, v_dim], with omega
// [features, qk_dim], which gets no gradient: [batch, queries, heads, v_dim] in the type of q.
//
// f32, f16 and bf16 on the CPU run on hone's kernels in f32, which have no second derivative; all
// others and softmax with eps run the operators of composed. Neither uses an autocast scope's
// type. With a state, it goes on behind the tokens that the state has seen (none if undefined), and
// updates it; then masks are those of the new tokens, and there is no gradient.
//
// Error{InvalidArgument} on other shapes and masks, eps below 0 or with causal softmax, and a state
// without causal.
torch::Tensor linear_attention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const torch::Tensor& omega,
                               const LinearAttentionOptions& options,
                               const LinearAttentionMasks& masks = {},
                               LinearAttentionState* state = nullptr);

// How the rows of omega are scaled.
enum class FeatureNorm {
  Chi,   // as those of a Gaussian matrix, so that features are unbiased
  Root,  // sqrt(dim), their root mean square
};

// Omega [features, dim] in f64: blocks of `dim` orthogonal rows (fewer in the last), uniformly
// distributed ("Orthogonal random features", Yu et al., arXiv 1610.09072). A pure function of its
// arguments by the generator Philox; `draw` numbers independent ones. Error{InvalidArgument} on
// sizes below 1.
torch::Tensor orthogonal_features(Index features, Index dim, FeatureNorm norm, std::uint64_t seed,
                                  std::uint32_t draw);

// A seed for one of several uses of a seed.
std::uint64_t derived_seed(std::uint64_t seed, std::uint32_t layer, std::uint32_t use);

namespace composed {
// The same by LibTorch's operators, in f64 for f64, otherwise in f32; causal attention runs over
// chunks of that many tokens.
torch::Tensor linear_attention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const torch::Tensor& omega,
                               const LinearAttentionOptions& options,
                               const LinearAttentionMasks& masks = {},
                               LinearAttentionState* state = nullptr, Index chunk = 64);
}  // namespace composed

}  // namespace hone::nn
