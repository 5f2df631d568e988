// SPDX-License-Identifier: Apache-2.0
// Random-feature attention and its contestants.
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
  bool is_layer = false;  // includes the projections of inputs and output
  bool is_train = false;  // forward and backward
  double norm = 1;        // root mean square of the norms of queries and of keys
};

// One sequence of seeded f32 numbers, on which all contestants work. q, k, v [1, tokens, heads,
// dim] are normal. For a layer, they are the projections of x [1, tokens, heads * dim].
struct AttentionWork {
  AttentionShape shape;
  torch::Tensor q = {}, k = {}, v = {};
  nn::RandomFeatureAttention layer{nullptr};  // the core uses its omega, too
  torch::Tensor x = {};                       // input of a layer
};
AttentionWork make_attention_work(const AttentionShape& shape);

// hone   linear_attention; for a layer, RandomFeatureAttention
// sdpa   at::scaled_dot_product_attention
// loop   one token after the other, with a state in memory for each, as in reference
//        implementations of causal random-feature attention; causal only
class AttentionContestant {
 public:
  // Throws Error{InvalidArgument} for another `way`.
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
  torch::Tensor x_, q_, k_, v_;  // own tensors, in the layout that it reads fastest
  torch::Tensor gradient_;
};

// The per-token loop for q, k, v [batch, tokens, heads, dim] in any type.
torch::Tensor looped_attention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const torch::Tensor& omega,
                               nn::FeatureKind kind);

// Bytes of the numbers that the graph of looped_attention() keeps.
double loop_graph_bytes(const AttentionShape& shape);

// Reference outputs of some queries, spread over the sequence, in f64 by definition: [rows, heads *
// dim].
torch::Tensor checked_rows(const AttentionShape& shape);  // int64 [rows]
// Uses the weights exp(q . k / sqrt(dim)).
torch::Tensor exact_attention(const AttentionWork& work, const torch::Tensor& rows);
// Uses the weights that the features estimate: for Softmax, the same as exact_attention(); for
// Relu, E relu(w . q) relu(w . k) = |q||k| (sin t + (pi - t) cos t) / (2 pi) at the angle t (Cho
// and Saul, "Kernel methods for deep learning", 2009).
torch::Tensor kernel_attention(const AttentionWork& work, const torch::Tensor& rows);

}  // namespace hone::bench
