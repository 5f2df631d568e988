// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "hone/core/index.h"
#include "hone/text/token_stream.h"

namespace hone::task {

// A batch for next-token prediction; targets[b, i] follows ids[b, i], or is -1 past the end of a
// window that is shorter than the longest of the batch.
struct TokenBatch {
  torch::Tensor ids, targets;  // [batch, length] int64, length <= window
  Index predicted = 0;         // number of targets that are not -1
};

// Training samples. Each epoch visits every sample once, in random order. Sample n of the run is a
// pure function of (seed, n).
class TokenWindows {
 public:
  // One stream: each epoch cuts it into windows of `window` + 1 tokens from a random start. Throws
  // Error{InvalidArgument} if there are fewer than window + 1 tokens.
  TokenWindows(std::vector<text::TokenId> tokens, Index window, std::uint64_t seed);
  // The windows of text::cut_windows over documents. Throws Error{InvalidArgument} if none has two
  // tokens.
  TokenWindows(text::TokenStream documents, Index window, std::uint64_t seed);

  Index window() const { return window_; }  // maximum positions of a sample
  Index windows_per_epoch() const { return windows_; }
  // Positions of the longest sample that there is.
  Index longest_length() const;
  Index tokens() const { return static_cast<Index>(tokens_.size()); }
  // The tokens of sample n.
  text::TokenRange range_of(Index sample) const;
  TokenBatch batch(Index first_sample, Index count) const;
  // A sample of the greatest length.
  TokenBatch longest() const;

 private:
  text::TokenRange longest_range() const;  // for documents
  TokenBatch batch_of(const std::vector<text::TokenRange>& rows) const;

  std::vector<text::TokenId> tokens_;
  std::vector<text::TokenRange> ranges_;  // for documents; empty: one stream
  Index window_ = 0, windows_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace hone::task
