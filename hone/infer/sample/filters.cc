// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/filters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "hone/core/check.h"
#include "hone/core/portable_math.h"
#include "hone/kernels/sampling/logit_row.h"

namespace hone::infer {
namespace {

using kernels::TokenCut;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A logit that at least `count` tokens reach: that many groups of 64 have a token which does.
float bound_of_likeliest(std::span<const float> logits, Index count) {
  const auto size = static_cast<Index>(logits.size());
  const Index groups = ceil_div(size, kernels::kLogitGroup);
  if (count > groups) return -kInfinity;
  std::vector<float> maxima(static_cast<std::size_t>(groups));
  kernels::group_maxima(logits.data(), size, maxima.data());
  const auto bound = maxima.begin() + (count - 1);
  std::nth_element(maxima.begin(), bound, maxima.end(), std::greater<>());
  return *bound;
}

std::vector<Candidate> tokens_at_least(std::span<const float> logits, float bound) {
  std::vector<std::int32_t> ids(logits.size());
  const auto found = static_cast<std::size_t>(kernels::collect_at_least(
      logits.data(), static_cast<Index>(logits.size()), bound, ids.data()));
  std::vector<Candidate> tokens(found);
  for (std::size_t i = 0; i < found; ++i) {
    tokens[i] = {logits[static_cast<std::size_t>(ids[i])], ids[i]};
  }
  return tokens;
}

TokenCut cut_after(const Candidate& last) { return {.least = last.logit, .last = last.id}; }

// Sign, exponent and four bits of the mantissa as a number that grows with the logit.
constexpr std::size_t kBuckets = 8192;
std::size_t bucket_of(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 becomes 0
  const std::uint32_t flipped = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return flipped >> 19;
}

struct WeightedToken {
  Candidate token;
  std::uint64_t weight = 0;
};

// The token at which the likeliest of `tokens` reach the wanted weight. Halves the range that
// contains it, so that the expected time is linear.
Candidate crossing_token_of(std::span<WeightedToken> tokens, std::uint64_t wanted) {
  auto begin = tokens.begin(), end = tokens.end();
  std::uint64_t reached = 0;  // by the tokens before `begin`
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, [](const WeightedToken& a, const WeightedToken& b) {
      return is_likelier(a.token, b.token);
    });
    std::uint64_t weight = reached;
    for (auto it = begin; it != middle; ++it) weight += it->weight;
    if (weight >= wanted) {
      end = middle;
    } else {
      reached = weight;
      begin = middle;
    }
  }
  return begin->token;
}

// The same over a row, token i of which has the weight weight_of(i) and the id id_of(i): finds the
// bucket that contains the token, then looks at this bucket alone.
template <class WeightOf, class IdOf>
Candidate crossing_token(std::span<const float> logits, std::uint64_t wanted,
                         const WeightOf& weight_of, const IdOf& id_of) {
  std::vector<std::uint64_t> weights(kBuckets);
  for (std::size_t i = 0; i < logits.size(); ++i) weights[bucket_of(logits[i])] += weight_of(i);
  std::size_t bucket = kBuckets - 1;
  std::uint64_t reached = 0;
  while (bucket > 0 && reached + weights[bucket] < wanted) reached += weights[bucket--];
  std::vector<WeightedToken> tokens;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (bucket_of(logits[i]) == bucket) tokens.push_back({{logits[i], id_of(i)}, weight_of(i)});
  }
  return crossing_token_of(tokens, wanted - reached);
}

TokenId own_index(std::size_t i) { return static_cast<TokenId>(i); }

TokenCut keep_top_k(std::span<const float> logits, Index k) {
  if (k <= 0 || k >= static_cast<Index>(logits.size())) return {};
  const float bound = bound_of_likeliest(logits, k);
  if (bound == -kInfinity) {
    const auto one = [](std::size_t) { return std::uint64_t{1}; };
    return cut_after(crossing_token(logits, static_cast<std::uint64_t>(k), one, own_index));
  }
  std::vector<Candidate> tokens = tokens_at_least(logits, bound);
  const auto last = tokens.begin() + (k - 1);
  std::nth_element(tokens.begin(), last, tokens.end(), is_likelier);
  return cut_after(*last);
}

// The token of these at which top-p ends.
template <class IdOf>
TokenCut end_of_top_p(std::span<const float> logits, float highest, const SamplingParams& sampling,
                      const IdOf& id_of) {
  const auto masses = std::make_unique_for_overwrite<std::uint64_t[]>(logits.size());
  const std::uint64_t total =
      kernels::softmax_masses(logits.data(), static_cast<Index>(logits.size()), highest,
                              sampling.temperature, masses.get());
  const double share = std::ceil(static_cast<double>(sampling.top_p) * static_cast<double>(total));
  const auto wanted = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 1, total);
  const auto mass_of = [&masses](std::size_t i) { return masses[i]; };
  return cut_after(crossing_token(logits, wanted, mass_of, id_of));
}

TokenCut keep_top_p(std::span<const float> logits, float highest, const SamplingParams& sampling,
                    const TokenCut& cut) {
  if (cut.least == -kInfinity) return end_of_top_p(logits, highest, sampling, own_index);
  std::vector<Candidate> kept = tokens_at_least(logits, cut.least);
  std::erase_if(kept, [&cut](const Candidate& c) { return !cut.keeps(c.logit, c.id); });
  std::vector<float> gathered(kept.size());
  std::ranges::transform(kept, gathered.begin(), &Candidate::logit);
  return end_of_top_p(gathered, highest, sampling, [&kept](std::size_t i) { return kept[i].id; });
}

// The least float that is at least highest + temperature * log(min_p).
float least_of_min_p(float highest, const SamplingParams& sampling) {
  const double share = portable_log(static_cast<double>(sampling.min_p));
  const double bound = highest + static_cast<double>(sampling.temperature) * share;
  if (bound <= -std::numeric_limits<float>::max()) return -std::numeric_limits<float>::max();
  const auto least = static_cast<float>(bound);
  return least < bound ? std::nextafter(least, kInfinity) : least;
}

}  // namespace

std::vector<Candidate> likeliest_tokens(std::span<const float> logits, Index count) {
  HONE_CHECK(count >= 0, "likeliest_tokens", "0 or more tokens", count);
  if (count == 0 || logits.empty()) return {};
  const Index wanted = std::min(count, static_cast<Index>(logits.size()));
  std::vector<Candidate> tokens = tokens_at_least(logits, bound_of_likeliest(logits, wanted));
  std::nth_element(tokens.begin(), tokens.begin() + (wanted - 1), tokens.end(), is_likelier);
  tokens.resize(static_cast<std::size_t>(wanted));
  return tokens;
}

kernels::TokenCut filter_tokens(std::span<const float> logits, float highest,
                                const SamplingParams& sampling) {
  TokenCut cut = keep_top_k(logits, sampling.top_k);
  if (sampling.top_p < 1) cut = keep_top_p(logits, highest, sampling, cut);
  if (sampling.min_p > 0) {
    const float least = least_of_min_p(highest, sampling);
    if (least > cut.least) cut = {.least = least};
  }
  return cut;
}

void write_distribution(std::span<const float> logits, float highest,
                        const SamplingParams& sampling, std::span<double> distribution) {
  HONE_CHECK(distribution.size() == logits.size(), "write_distribution",
             concat(logits.size(), " probabilities"), distribution.size());
  if (sampling.temperature == 0) {
    std::ranges::fill(distribution, 0.0);
    const auto count = static_cast<Index>(logits.size());
    const Index top = kernels::first_at_least(logits.data(), count, highest);
    distribution[static_cast<std::size_t>(top)] = 1;
    return;
  }
  const TokenCut cut = filter_tokens(logits, highest, sampling);
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double x = (static_cast<double>(logits[i]) - highest) / sampling.temperature;
    const bool is_kept = x > -700 && cut.keeps(logits[i], static_cast<Index>(i));
    distribution[i] = is_kept ? portable_exp(x) : 0;
    total += distribution[i];
  }
  for (double& probability : distribution) probability /= total;
}

}  // namespace hone::infer
