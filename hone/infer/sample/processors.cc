// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/processors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

// Orders by likelihood, then by the lowest id, so that a cut does not depend on the order of
// selection.
bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

void keep_top_k(std::vector<Candidate>& candidates, Index k) {
  if (k <= 0 || k >= static_cast<Index>(candidates.size())) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), is_likelier);
  candidates.resize(static_cast<std::size_t>(k));
}

float largest_logit(const std::vector<Candidate>& candidates) {
  return std::max_element(candidates.begin(), candidates.end(),
                          [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; })
      ->logit;
}

// Keeps the most likely tokens up to and including the one that reaches `mass`. Sorts growing
// prefixes until one suffices, usually the first one of 64.
void keep_top_p(std::vector<Candidate>& candidates, float mass) {
  if (mass >= 1) return;
  const float highest = largest_logit(candidates);
  double total = 0;
  for (const Candidate& candidate : candidates) total += std::exp(candidate.logit - highest);
  const double wanted = mass * total;
  double reached = 0;
  std::size_t sorted = 0;
  while (sorted < candidates.size()) {
    const std::size_t end = std::min(candidates.size(), std::max<std::size_t>(64, 4 * sorted));
    const auto begin = candidates.begin() + static_cast<Index>(sorted);
    std::partial_sort(begin, candidates.begin() + static_cast<Index>(end), candidates.end(),
                      is_likelier);
    for (; sorted < end; ++sorted) {
      reached += std::exp(candidates[sorted].logit - highest);
      if (reached >= wanted) {
        candidates.resize(sorted + 1);
        return;
      }
    }
  }
}

void keep_min_p(std::vector<Candidate>& candidates, float share) {
  if (share <= 0) return;
  const float least = largest_logit(candidates) + std::log(share);
  std::erase_if(candidates, [least](const Candidate& c) { return c.logit < least; });
}

}  // namespace

TokenHistory::TokenHistory(std::span<const TokenId> prompt) {
  for (const TokenId id : prompt) counts_[id].in_prompt = true;
}

void apply_bias_and_penalties(std::span<float> logits, const SamplingParams& sampling,
                              const TokenHistory& history) {
  for (const LogitBias& entry : sampling.logit_bias) {
    logits[static_cast<std::size_t>(entry.id)] += entry.bias;
  }
  const float repetition = sampling.repetition_penalty;
  const bool counts_matter =
      repetition != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  if (!counts_matter) return;
  for (const auto& [id, count] : history.counts()) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0 ? logit * repetition : logit / repetition;
    if (count.in_output == 0) continue;
    logit -= sampling.presence_penalty +
             sampling.frequency_penalty * static_cast<float>(count.in_output);
  }
}

void mask_tokens(std::span<float> logits, std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    logits[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
}

std::vector<Candidate> filter_candidates(std::span<const float> logits,
                                         const SamplingParams& sampling) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i] / sampling.temperature;
    if (logit > -std::numeric_limits<float>::infinity()) {
      candidates.push_back({logit, static_cast<TokenId>(i)});
    }
  }
  HONE_REQUIRE(!candidates.empty(), "sampling", "Every token is masked.");
  keep_top_k(candidates, sampling.top_k);
  keep_top_p(candidates, sampling.top_p);
  keep_min_p(candidates, sampling.min_p);
  return candidates;
}

}  // namespace hone::infer
