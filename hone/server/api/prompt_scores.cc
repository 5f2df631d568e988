// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/prompt_scores.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace hone::server {
namespace {

// ln of the sum of e^x.
double log_sum_exp(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  return most + std::log(sum);
}

std::vector<infer::TokenLogprob> most_likely(std::span<const float> logits, double normalizer,
                                             Index count) {
  std::vector<infer::TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto precedes = [&](infer::TokenId a, infer::TokenId b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const Index kept = std::min(count, std::ssize(ids));
  std::ranges::partial_sort(ids, ids.begin() + kept, precedes);
  std::vector<infer::TokenLogprob> out;
  for (Index i = 0; i < kept; ++i) {
    const infer::TokenId id = ids[static_cast<std::size_t>(i)];
    out.push_back({.id = id, .logprob = logits[static_cast<std::size_t>(id)] - normalizer});
  }
  return out;
}

}  // namespace

PromptScores score_prompt(infer::Engine& engine, std::span<const infer::TokenId> tokens, Index top,
                          std::uint64_t salt) {
  PromptScores out;
  if (tokens.size() < 2) return out;
  const auto vocab = static_cast<std::size_t>(engine.info().architecture.vocab_size);
  engine.score(tokens,
               {.on_logits =
                    [&](Index first, Index count, std::span<const float> rows) {
                      for (Index i = 0; i < count; ++i) {
                        const auto row = rows.subspan(static_cast<std::size_t>(i) * vocab, vocab);
                        const double normalizer = log_sum_exp(row);
                        const auto id =
                            static_cast<std::size_t>(tokens[static_cast<std::size_t>(first + i)]);
                        // The same difference as in `top`: clients compare the two.
                        out.logprobs.push_back(row[id] - normalizer);
                        out.top.push_back(most_likely(row, normalizer, top));
                      }
                    },
                .salt = salt});
  return out;
}

}  // namespace hone::server
