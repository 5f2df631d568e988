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

// The least denominator of a row. With Softmax it is relative to the largest features of the query
// and of the keys. Below it, no feature that a query shares with a key says anything about their
// product. The gradient of all queries has the inverse of the denominator as a factor, and would
// overflow.
inline constexpr float kLeastFeatureSum = 0x1p-80f;

// Attention with phi(q_i) . phi(k_j) in place of exp(q_i . k_j / sqrt(qk_dim)):
//   out_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)
// over the keys j that key_mask admits; with `causal`, only over j <= i. Time and memory are linear
// in the number of tokens. A row of out is 0 if its denominator is below kLeastFeatureSum, or if
// query_mask does not admit it.
//
// Numerics: with Softmax, every query is scaled by its own largest feature and every key by the
// largest one so far, so that no exponential overflows; both factors cancel. Products run on chunks
// of 64 tokens. Later tokens do not change a bit of earlier causal outputs, except that a value
// that is not finite may affect rows of its own chunk. A NaN in a query or key makes the outputs
// that use it NaN. Results do not depend on the number of workers.
struct LinearAttentionArgs {
  Index batch = 0, heads = 0;
  Index queries = 0, keys = 0;  // tokens; equal if causal
  Index qk_dim = 0, v_dim = 0, features = 0;
  FeatureKind kind = FeatureKind::Softmax;
  float eps = 0;  // for Relu
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
  // State of a causal call. Read before the first token and updated after the last, for the next
  // call: sum_j phi(k_j) [v_j, 1], with Softmax features relative to e^max_exponent. Null: no
  // earlier tokens.
  float* state = nullptr;         // [batch, heads, v_dim + 1, features]; zeros at first
  float* max_exponent = nullptr;  // [batch, heads]; -infinity at first, which Relu leaves

  Index state_floats() const { return (v_dim + 1) * features; }  // per head
  Index checkpoint_floats() const;
};

// Returns the bytes that a call allocates while it runs; `backward`: a call of the gradient.
Index linear_attention_bytes(const LinearAttentionArgs& args, bool backward, Index workers);

// Throws Error{InvalidArgument} for sizes below 1 (batch, queries and keys: below 0), for eps below
// 0 or not finite, if `causal` with different numbers of queries and keys, or for a state without
// `causal` or max_exponent. Work is distributed by heads of sequences. With a state, a call of one
// token takes 2 features * (qk_dim + v_dim + 1) products.
void linear_attention(const LinearAttentionArgs& args, Executor& executor = serial_executor());

struct LinearAttentionGradArgs {
  LinearAttentionArgs forward;      // the forward call's arguments and three outputs; no state
  const float* grad_out = nullptr;  // [batch, queries, heads, v_dim]
  float* grad_q = nullptr;          // like q
  float* grad_k = nullptr;          // like k
  float* grad_v = nullptr;          // like v
};

// Computes the gradient for fixed omega. Recomputes features chunk by chunk. Throws
// Error{InvalidArgument} like linear_attention(), for a state, and without inverse_sums or
// checkpoints.
void linear_attention_grad(const LinearAttentionGradArgs& args,
                           Executor& executor = serial_executor());

// References: plain loops over all pairs of tokens in double. They read and write no state,
// inverse_sums or checkpoints.
void linear_attention_ref(const LinearAttentionArgs& args);
void linear_attention_grad_ref(const LinearAttentionGradArgs& args);

}  // namespace hone::kernels
