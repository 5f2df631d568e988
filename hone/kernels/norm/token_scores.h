// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Rows of f32 logits as predictions of the actual tokens, in double precision. A row with a NaN,
// with +infinity or with only -infinity is not a distribution; its results are NaN. A row's results
// depend only on that row and are the same in both functions.

// log_probabilities[r] = log(softmax(logits[r])[targets[r]]).
struct TokenScoreArgs {
  Index rows = 0, vocab = 0;
  const float* logits = nullptr;          // [rows, vocab]
  const std::int32_t* targets = nullptr;  // [rows], 0 … vocab - 1
  double* log_probabilities = nullptr;    // [rows]
};

// The predictions of a model and of its baseline for one token.
struct TokenPair {
  double log_probability = 0, baseline_log_probability = 0;  // of the actual token
  double kl = 0;          // KL(softmax(baseline) || softmax(model)) >= 0, in nats
  bool same_top = false;  // true if both rank the same token first, the lowest id on ties
};

struct TokenPairArgs {
  Index rows = 0, vocab = 0;
  const float* logits = nullptr;          // [rows, vocab]
  const float* baseline = nullptr;        // [rows, vocab]
  const std::int32_t* targets = nullptr;  // [rows], 0 … vocab - 1
  TokenPair* pairs = nullptr;             // [rows]
};

// Throws Error{InvalidArgument}, before writing anything, if rows is negative, vocab is not
// positive or a target is outside [0, vocab).
void score_tokens(const TokenScoreArgs& args, Executor& executor = serial_executor());
void compare_tokens(const TokenPairArgs& args, Executor& executor = serial_executor());

// References: plain loops.
void score_tokens_ref(const TokenScoreArgs& args);
void compare_tokens_ref(const TokenPairArgs& args);

}  // namespace hone::kernels
