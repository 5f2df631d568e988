// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/sampler.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/kernels/sampling/logit_row.h"

namespace hone::infer {
namespace {

kernels::LogitRange range_of(std::span<const float> logits) {
  return kernels::logit_range(logits.data(), static_cast<Index>(logits.size()));
}

kernels::LogitRange finite_range(std::span<const float> logits) {
  const kernels::LogitRange range = range_of(logits);
  if (!range.is_finite) {
    const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
    fail(ErrorCategory::Internal, "model", "finite logits",
         concat(*bad, " for token ", bad - logits.begin()));
  }
  return range;
}

}  // namespace

void require_finite(std::span<const float> logits) { finite_range(logits); }

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, Index count,
                                       double log_sum_exp) {
  std::vector<Candidate> top = likeliest_tokens(logits, count);
  std::sort(top.begin(), top.end(), is_likelier);
  std::vector<TokenLogprob> result;
  for (const Candidate& c : top) result.push_back({c.id, c.logit - log_sum_exp});
  return result;
}

// The part of the chain that changes logits. Returns the largest of the results.
float Sampler::process(std::span<float> logits, std::span<const TokenId> masked,
                       const grammar::TokenMask* allowed) const {
  const kernels::LogitRange raw = finite_range(logits);
  apply_logit_bias(logits, sampling_.logit_bias);
  mask_tokens(logits, masked);
  if (allowed != nullptr) allowed->apply(logits);
  apply_penalties(logits, sampling_, history_);
  const bool is_raw = sampling_.logit_bias.empty() && masked.empty() && allowed == nullptr &&
                      sampling_.repetition_penalty == 1 && sampling_.presence_penalty == 0 &&
                      sampling_.frequency_penalty == 0;
  const float highest = is_raw ? raw.highest : range_of(logits).highest;
  HONE_REQUIRE(std::isfinite(highest), "sampling", "Every token is masked.");
  return highest;
}

TokenId Sampler::choose(std::span<float> logits, Index position, std::span<const TokenId> masked,
                        const grammar::TokenMask* allowed) {
  const float highest = process(logits, masked, allowed);
  const auto count = static_cast<Index>(logits.size());
  Index id = 0;
  if (sampling_.temperature == 0) {
    id = kernels::first_at_least(logits.data(), count, highest);
  } else {
    id = kernels::gumbel_argmax({.logits = logits.data(),
                                 .count = count,
                                 .highest = highest,
                                 .temperature = sampling_.temperature,
                                 .cut = filter_tokens(logits, highest, sampling_),
                                 .key = {.seed = sampling_.seed,
                                         .position = static_cast<std::uint32_t>(position),
                                         .choice = sampling_.choice}});
  }
  const auto token = static_cast<TokenId>(id);
  history_.add_output(token);
  return token;
}

void Sampler::write_distribution(std::span<float> logits, std::span<const TokenId> masked,
                                 std::span<double> distribution,
                                 const grammar::TokenMask* allowed) {
  infer::write_distribution(logits, process(logits, masked, allowed), sampling_, distribution);
}

}  // namespace hone::infer
