// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "hone/core/index.h"
#include "hone/core/json_io.h"
#include "hone/tune/quality/block_bootstrap.h"

namespace hone::tune {

// A figure with its 95 % interval.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

// How far a model is from its baseline on the same held-out tokens.
struct QualityComparison {
  double baseline_nll = 0, baseline_perplexity = 1;
  Estimate perplexity_ratio;                                           // model / baseline; paired
  double kl_mean = 0, kl_p50 = 0, kl_p90 = 0, kl_p99 = 0, kl_max = 0;  // nats per token
  double top1_agreement = 0;                 // share of tokens where both rank the same token first
  double delta_p_mean = 0, delta_p_rms = 0;  // p_model(token) - p_baseline(token)
  std::optional<double> log_probability_correlation;  // Pearson; nothing when one does not vary
};

// The quality card (docs/compression.md): means over held-out tokens, natural logarithms.
struct QualityCard {
  Index tokens = 0, bytes = 0;
  double nll = 0;                       // nats per token
  Estimate perplexity;                  // exp(nll)
  std::optional<double> bits_per_byte;  // sum in bits / bytes; nothing when bytes are unknown
  Index blocks = 0;                     // of the bootstrap
  std::optional<QualityComparison> comparison;
};

// Collects held-out tokens one at a time. Keeps 8 bytes per token, 32 with a baseline.
class QualityAccumulator {
 public:
  // One predicted token: logits [vocab] and the token that came. Errors as score_token().
  void add(std::span<const float> logits, Index target);
  // The same with the baseline's logits for the same token. Either every token has a baseline or
  // none has: Error{InvalidArgument}.
  void add(std::span<const float> logits, std::span<const float> baseline, Index target);

  Index tokens() const { return static_cast<Index>(log_probabilities_.size()); }

  // `bytes`: UTF-8 bytes of the predicted tokens, 0 when unknown. Error{InvalidArgument} when no
  // token was added.
  QualityCard finish(Index bytes, const BootstrapOptions& options = {}) const;

 private:
  QualityComparison compare(const BootstrapOptions& options) const;

  std::vector<double> log_probabilities_, baseline_, kl_;
  Index agreements_ = 0;
};

// Fields of `hone eval --json`: tokens, nll, perplexity, perplexity_ci, bits_per_byte and, with a
// baseline, kl_mean … log_probability_correlation. What is unknown is null.
Json to_json(const QualityCard& card);

}  // namespace hone::tune
