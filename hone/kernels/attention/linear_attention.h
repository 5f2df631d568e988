// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Positive random features of a query or key x, with rows w_j of omega [features, qk_dim]
// (Choromanski et al., "Rethinking attention with Performers", arXiv 2009.14794).
enum class FeatureKind {
  Softmax,  // exp(w_j . y - |y|^2 / 2) / sqrt(features), y = x / qk_dim^(1/4)
  Relu,     // max(0, w_j . x / sqrt(features)) + eps
};

// The least sum of features, relative to the largest ones. Below it, a query shares no feature with
// any key that would say something of their product; the gradient of all queries has its inverse as
// a factor, and would overflow.
inline constexpr float kLeastFeatureSum = 0x1p-80f;

// Attention with phi(q_i) . phi(k_j) in place of exp(q_i . k_j / sqrt(qk_dim)):
//   out_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)
// over the keys j that key_mask admits, with `causal` over those with j <= i. Time and memory are
// linear in the number of tokens. Rows of out whose denominator is below kLeastFeatureSum are 0,
// and so are queries that query_mask does not admit.
//
// Numerics: every query is scaled by its own largest feature and every key by the largest so far,
// so that no exponential overflows; both cancel. Products run on chunks of 64 tokens. Later tokens
// do not change a bit of earlier causal outputs, except that a value that is not finite may affect
// rows of its own chunk; a NaN in a query or key makes the outputs that involve it NaN. Results
// do not depend on the number of workers.
struct LinearAttentionArgs {
  Index batch = 0, heads = 0;
  Index queries = 0, keys = 0;  // tokens; equal where causal
  Index qk_dim = 0, v_dim = 0, features = 0;
  FeatureKind kind = FeatureKind::Softmax;
  float eps = 0;  // of Relu
  bool causal = false;
  const float* q = nullptr;          // [batch, queries, heads, qk_dim]
  const float* k = nullptr;          // [batch, keys, heads, qk_dim]
  const float* v = nullptr;          // [batch, keys, heads, v_dim]
  const float* omega = nullptr;      // [features, qk_dim]
  const bool* key_mask = nullptr;    // [batch, keys], true = attend; null: all
  const bool* query_mask = nullptr;  // [batch, queries]
  float* out = nullptr;              // [batch, queries, heads, v_dim]
  float* inverse_sums = nullptr;     // [batch, heads, queries], for the gradient; or null
  float* checkpoints = nullptr;      // checkpoint_floats(), for the gradient; or null
  // What a causal call has seen before its first token and, after it, what the next call needs:
  // sum_j phi(k_j) [v_j, 1], with features relative to e^max_exponent. Null: nothing before.
  float* state = nullptr;         // [batch, heads, v_dim + 1, features]; zeros at first
  float* max_exponent = nullptr;  // [batch, heads]; -infinity at first

  Index state_floats() const { return (v_dim + 1) * features; }  // of a head
  Index checkpoint_floats() const;
};

// Bytes that a call, or a call of the gradient, allocates for the time that it takes.
Index linear_attention_bytes(const LinearAttentionArgs& args, bool backward, Index workers);

// Error{InvalidArgument} on sizes below 1 (batch, queries and keys: below 0), eps below 0 or not
// finite, causal attention to another number of keys, or a state without causal. Work is
// distributed by heads of sequences. With a state, a call of one token takes the time of
// features * (2 qk_dim + v_dim) products.
void linear_attention(const LinearAttentionArgs& args, Executor& executor = serial_executor());

struct LinearAttentionGradArgs {
  LinearAttentionArgs forward;      // as it was, with what it wrote; without a state
  const float* grad_out = nullptr;  // [batch, queries, heads, v_dim]
  float* grad_q = nullptr;          // as q
  float* grad_k = nullptr;          // as k
  float* grad_v = nullptr;          // as v
};

// The gradient for fixed omega. Features are computed again chunk by chunk.
void linear_attention_grad(const LinearAttentionGradArgs& args,
                           Executor& executor = serial_executor());

// The references: plain loops over all pairs of tokens in double. They read and write no state,
// inverse_sums or checkpoints.
void linear_attention_ref(const LinearAttentionArgs& args);
void linear_attention_grad_ref(const LinearAttentionGradArgs& args);

}  // namespace hone::kernels
