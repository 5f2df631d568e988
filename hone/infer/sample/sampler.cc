// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::infer {
namespace {

constexpr std::uint32_t kPurposeToken =
    1;  // a different number for each purpose at the same position

PhiloxBlock random_block(const SamplingParams& sampling, Index position, TokenId id) {
  return philox(sampling.seed, {static_cast<std::uint32_t>(position),
                                static_cast<std::uint32_t>(id), kPurposeToken, sampling.choice});
}

}  // namespace

TokenId argmax(std::span<const float> values) {
  std::size_t best = 0;
  float highest = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > highest) {
      highest = values[i];
      best = i;
    }
  }
  return static_cast<TokenId>(best);
}

// With u uniform, E = -log(u) and G = -log(E), the winner minimizes E * exp(-logit). As E >= 1 - u,
// tokens for which 1 - u is already too large need no logarithm, which is nearly all of them.
TokenId draw_gumbel(std::span<const Candidate> candidates, const SamplingParams& sampling,
                    Index position) {
  const auto likeliest =
      std::max_element(candidates.begin(), candidates.end(),
                       [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  const double highest = likeliest->logit;
  double best = std::numeric_limits<double>::infinity();
  TokenId winner = likeliest->id;
  for (const Candidate& candidate : candidates) {
    const PhiloxBlock bits = random_block(sampling, position, candidate.id);
    const double u = open_unit_double(bits[0], bits[1]);
    const double weight = std::exp(static_cast<double>(candidate.logit) - highest);
    if (!(1 - u <= best * weight)) continue;
    const double time = -std::log(u) / weight;
    if (time < best || (time == best && candidate.id < winner)) {
      best = time;
      winner = candidate.id;
    }
  }
  return winner;
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, Index count,
                                       double log_sum_exp) {
  std::vector<Candidate> heap;  // the least likely of the best so far is in front
  const auto is_likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<TokenId>(i)};
    if (static_cast<Index>(heap.size()) == count) {
      if (heap.empty() || !is_likelier(candidate, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), is_likelier);
      heap.pop_back();
    }
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end(), is_likelier);
  }
  std::sort_heap(heap.begin(), heap.end(), is_likelier);
  std::vector<TokenLogprob> result;
  for (const Candidate& c : heap) result.push_back({c.id, c.logit - log_sum_exp});
  return result;
}

TokenId Sampler::choose(std::span<float> logits, Index position, std::span<const TokenId> masked) {
  apply_bias_and_penalties(logits, sampling_, history_);
  mask_tokens(logits, masked);
  // Draws check that themselves; the index of a largest element exists in any case.
  const bool any_left = sampling_.temperature != 0 || std::ranges::any_of(logits, [](float logit) {
                          return logit > -std::numeric_limits<float>::infinity();
                        });
  HONE_REQUIRE(any_left, "sampling", "Every token is masked.");
  const TokenId id = sampling_.temperature == 0
                         ? argmax(logits)
                         : draw_gumbel(filter_candidates(logits, sampling_), sampling_, position);
  history_.add_output(id);
  return id;
}

}  // namespace hone::infer
