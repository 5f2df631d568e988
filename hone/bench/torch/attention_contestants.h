// SPDX-License-Identifier: Apache-2.0
// Attention by random features and what it is measured against.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>

#include "hone/core/index.h"
#include "hone/train/sketch/random_feature_attention.h"

namespace hone::bench {

struct AttentionShape {
  Index tokens = 0, heads = 1, dim = 0, features = 0;  // dim of a head
  nn::FeatureKind kind = nn::FeatureKind::Softmax;
  bool causal = false;
  bool is_layer = false;  // with the projections of inputs and output
  bool is_train = false;  // forward and backward
  double norm = 1;        // root mean square of the norms of queries and of keys
};

// One sequence of seeded numbers in f32 on which all contestants work. q, k, v [1, tokens, heads,
// dim] are normal; those of a layer are the projections of x [1, tokens, heads * dim].
struct AttentionWork {
  AttentionShape shape;
  torch::Tensor q = {}, k = {}, v = {};
  nn::RandomFeatureAttention layer{nullptr};  // its omega is that of the core, too
  torch::Tensor x = {};                       // of a layer
};
AttentionWork make_attention_work(const AttentionShape& shape);

// hone   linear_attention, of a layer RandomFeatureAttention
// sdpa   at::scaled_dot_product_attention
// loop   one token after the other with a state in memory for each, as reference implementations of
//        causal random-feature attention have it; causal only
class AttentionContestant {
 public:
  // Error{InvalidArgument} on another way.
  AttentionContestant(const std::string& way, const AttentionWork& work);
  torch::Tensor forward() const;  // [1, tokens, heads * dim]
  void run() const;               // forward, or forward and backward
  void clear() const;             // drops gradients

 private:
  torch::Tensor attend(const torch::Tensor& q, const torch::Tensor& k,
                       const torch::Tensor& v) const;

  std::string way_;
  AttentionShape shape_;
  nn::RandomFeatureAttention layer_;
  torch::Tensor x_, q_, k_, v_;  // of its own, in the layout that it reads fastest
  torch::Tensor gradient_;
};

// The per-token loop for q, k, v [batch, tokens, heads, dim] in any type.
torch::Tensor looped_attention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const torch::Tensor& omega,
                               nn::FeatureKind kind);

// What the numbers that its graph keeps take, in bytes.
double loop_graph_bytes(const AttentionShape& shape);

// Outputs of some queries, spread over the sequence, in f64 by definition: [rows, heads * dim].
torch::Tensor checked_rows(const AttentionShape& shape);  // int64 [rows]
// With weights exp(q . k / sqrt(dim)).
torch::Tensor exact_attention(const AttentionWork& work, const torch::Tensor& rows);
// With the weights that the features estimate: those, or for Relu, E relu(w . q) relu(w . k) =
// |q||k| (sin t + (pi - t) cos t) / (2 pi) at the angle t (Cho and Saul, "Kernel methods for deep
// learning", 2009).
torch::Tensor kernel_attention(const AttentionWork& work, const torch::Tensor& rows);

}  // namespace hone::bench
