// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/quality/quality_card.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "hone/core/check.h"

namespace hone::compress {
namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Pearson's correlation, computed in two passes.
std::optional<double> correlate(std::span<const double> a, std::span<const double> b) {
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double aa = 0, bb = 0, ab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double da = a[i] - mean_a, db = b[i] - mean_b;
    aa += da * da;
    bb += db * db;
    ab += da * db;
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  return std::clamp(ab / (std::sqrt(aa) * std::sqrt(bb)), -1.0, 1.0);
}

Estimate estimate_of(const MeanInterval& interval) {
  return {interval.mean, interval.low, interval.high};
}

Estimate exp_of(const MeanInterval& interval) {
  return {std::exp(interval.mean), std::exp(interval.low), std::exp(interval.high)};
}

void check_log_probability(double log_probability) {
  HONE_CHECK(!std::isnan(log_probability), "quality", "finite logits", log_probability);
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

void QualityAccumulator::add(double log_probability) {
  HONE_REQUIRE(baseline_.empty(), "quality", "This token has no baseline, but earlier ones have.");
  check_log_probability(log_probability);
  log_probabilities_.push_back(log_probability);
}

void QualityAccumulator::add(const PairedScore& score) {
  HONE_REQUIRE(baseline_.size() == log_probabilities_.size(), "quality",
               "This token has a baseline, but earlier ones have none.");
  check_log_probability(score.log_probability);
  check_log_probability(score.baseline_log_probability);
  log_probabilities_.push_back(score.log_probability);
  baseline_.push_back(score.baseline_log_probability);
  kl_.push_back(score.kl);
  agrees_.push_back(score.same_top ? 1 : 0);
}

QualityCard QualityAccumulator::finish(Index bytes, const BootstrapOptions& options) const {
  HONE_REQUIRE(tokens() > 0, "quality", "There is no predicted token.");
  HONE_CHECK(bytes >= 0, "quality", "at least 0 bytes", bytes);
  std::vector<double> nll(log_probabilities_.size());
  std::transform(log_probabilities_.begin(), log_probabilities_.end(), nll.begin(),
                 [](double log_probability) { return -log_probability; });
  const MeanInterval interval = bootstrap_mean(nll, options);
  QualityCard card;
  card.tokens = tokens();
  card.bytes = bytes;
  card.nll = interval.mean;
  card.perplexity = exp_of(interval);
  card.blocks = interval.blocks;
  card.block_tokens = interval.block;
  if (bytes > 0) {
    card.bits_per_byte = interval.mean * static_cast<double>(card.tokens) /
                         (std::numbers::ln2 * static_cast<double>(bytes));
  }
  if (!baseline_.empty()) card.comparison = compare(options);
  return card;
}

QualityComparison QualityAccumulator::compare(const BootstrapOptions& options) const {
  QualityComparison result;
  const auto n = log_probabilities_.size();
  std::vector<double> excess(n);  // nll of the model minus nll of the baseline
  double delta_sum = 0, delta_squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    excess[i] = baseline_[i] - log_probabilities_[i];
    const double delta = std::exp(log_probabilities_[i]) - std::exp(baseline_[i]);
    delta_sum += delta;
    delta_squares += delta * delta;
  }
  result.baseline_nll = -mean_of(baseline_);
  result.baseline_perplexity = std::exp(result.baseline_nll);
  result.perplexity_ratio = exp_of(bootstrap_mean(excess, options));
  result.delta_p_mean = delta_sum / static_cast<double>(n);
  result.delta_p_rms = std::sqrt(delta_squares / static_cast<double>(n));
  result.top1_agreement = estimate_of(bootstrap_mean(agrees_, options));
  result.log_probability_correlation = correlate(log_probabilities_, baseline_);
  result.kl_mean = estimate_of(bootstrap_mean(kl_, options));
  std::vector<double> kl = kl_;
  result.kl_p50 = take_quantile(kl, 0.5);
  result.kl_p90 = take_quantile(kl, 0.9);
  result.kl_p99 = take_quantile(kl, 0.99);
  result.kl_max = kl.back();
  return result;
}

Json to_json(const QualityCard& card) {
  Json json;
  json["tokens"] = card.tokens;
  json["bytes"] = card.bytes;
  json["nll"] = card.nll;
  json["perplexity"] = card.perplexity.value;
  json["perplexity_ci"] = {card.perplexity.low, card.perplexity.high};
  json["bits_per_byte"] = or_null(card.bits_per_byte);
  json["bootstrap_blocks"] = card.blocks;
  json["bootstrap_block_tokens"] = card.block_tokens;
  if (!card.comparison) return json;
  const QualityComparison& comparison = *card.comparison;
  json["baseline_nll"] = comparison.baseline_nll;
  json["baseline_perplexity"] = comparison.baseline_perplexity;
  const auto put = [&](const std::string& name, const Estimate& estimate) {
    json[name] = estimate.value;
    json[name + "_ci"] = {estimate.low, estimate.high};
  };
  put("ppl_ratio", comparison.perplexity_ratio);
  put("kl_mean", comparison.kl_mean);
  json["kl_p50"] = comparison.kl_p50;
  json["kl_p90"] = comparison.kl_p90;
  json["kl_p99"] = comparison.kl_p99;
  json["kl_max"] = comparison.kl_max;
  put("top1_agreement", comparison.top1_agreement);
  json["delta_p_mean"] = comparison.delta_p_mean;
  json["delta_p_rms"] = comparison.delta_p_rms;
  json["log_probability_correlation"] = or_null(comparison.log_probability_correlation);
  return json;
}

}  // namespace hone::compress
