// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "hone/compress/quality/block_bootstrap.h"
#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::compress {

// A value with its 95 % interval.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

// Compares a model with its baseline on the same held-out tokens.
struct QualityComparison {
  double baseline_nll = 0, baseline_perplexity = 1;
  Estimate perplexity_ratio;  // model / baseline; paired
  Estimate kl_mean;           // nats per token
  double kl_p50 = 0, kl_p90 = 0, kl_p99 = 0, kl_max = 0;
  Estimate top1_agreement;  // fraction of tokens where both rank the same token first
  double delta_p_mean = 0, delta_p_rms = 0;           // p_model(token) - p_baseline(token)
  std::optional<double> log_probability_correlation;  // Pearson; empty if one does not vary
};

// The quality card (docs/compression.md): means over held-out tokens, with natural logarithms.
struct QualityCard {
  Index tokens = 0, bytes = 0;
  double nll = 0;                       // nats per token
  Estimate perplexity;                  // exp(nll)
  std::optional<double> bits_per_byte;  // sum in bits / bytes; empty if the bytes are unknown
  Index blocks = 0, block_tokens = 0;   // of the bootstrap
  std::optional<QualityComparison> comparison;
};

// The scores of one predicted token under a model and its baseline.
struct PairedScore {
  double log_probability = 0, baseline_log_probability = 0;  // of the actual token
  double kl = 0;                                             // KL(baseline || model) >= 0, in nats
  bool same_top = false;  // whether both rank the same token first
};

// Accumulates held-out tokens one at a time. Stores 8 bytes per token, 40 with a baseline.
class QualityAccumulator {
 public:
  // Adds one predicted token by the natural logarithm of its probability, which may be -infinity.
  // Throws Error{InvalidArgument} for NaN, which the logits of no distribution give.
  void add(double log_probability);
  // The same beside a baseline. Throws Error{InvalidArgument} also unless all tokens or none have a
  // baseline.
  void add(const PairedScore& score);

  Index tokens() const { return static_cast<Index>(log_probabilities_.size()); }

  // `bytes` is the number of UTF-8 bytes of the predicted tokens, 0 if unknown. Throws
  // Error{InvalidArgument} if no token was added.
  QualityCard finish(Index bytes, const BootstrapOptions& options = {}) const;

 private:
  QualityComparison compare(const BootstrapOptions& options) const;

  std::vector<double> log_probabilities_, baseline_, kl_, agrees_;
};

// The fields of `hone eval --json`: tokens, nll, perplexity, perplexity_ci, bits_per_byte and, with
// a baseline, kl_mean … log_probability_correlation. Unknown values are null.
Json to_json(const QualityCard& card);

}  // namespace hone::compress
