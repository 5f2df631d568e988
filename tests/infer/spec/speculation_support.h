// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "hone/core/philox.h"
#include "hone/infer/spec/verify.h"

namespace hone::infer::test {

using Distribution = std::vector<double>;

// How the draft's distribution relates to the target's.
enum class Pair { Random, Zeros, Equal, Disjoint };

// The distributions of target and draft after a prefix: random, and different for each prefix.
class DistributionPair {
 public:
  DistributionPair(std::uint64_t seed, std::size_t vocab, Pair pair)
      : seed_(seed), vocab_(vocab), pair_(pair) {}

  std::size_t vocab() const { return vocab_; }
  const Distribution& target(std::span<const TokenId> prefix) const { return look_up(prefix, 0); }
  const Distribution& draft(std::span<const TokenId> prefix) const {
    return look_up(prefix, pair_ == Pair::Equal ? 0 : 1);
  }

 private:
  const Distribution& look_up(std::span<const TokenId> prefix, std::size_t which) const {
    const auto [entry, is_new] =
        distributions_[which].try_emplace(std::vector<TokenId>(prefix.begin(), prefix.end()));
    if (is_new) entry->second = make(prefix, which);
    return entry->second;
  }
  Distribution make(std::span<const TokenId> prefix, std::uint64_t which) const {
    std::uint64_t stream = which;
    for (const TokenId id : prefix) stream = stream * 31 + static_cast<std::uint64_t>(id) + 2;
    PhiloxStream random(seed_, stream);
    Distribution distribution(vocab_);
    double total = 0;
    for (std::size_t y = 0; y < vocab_; ++y) {
      distribution[y] = -std::log(random.uniform_double());
      if (pair_ == Pair::Zeros && random.below(3) == 0 && y != seed_ % vocab_) distribution[y] = 0;
      if (pair_ == Pair::Disjoint && y % 2 != which) distribution[y] = 0;
      total += distribution[y];
    }
    for (double& probability : distribution) probability /= total;
    return distribution;
  }

  std::uint64_t seed_;
  std::size_t vocab_;
  Pair pair_;
  mutable std::array<std::map<std::vector<TokenId>, Distribution>, 2> distributions_;
};

inline void append(Distribution& all, const Distribution& one) {
  all.insert(all.end(), one.begin(), one.end());
}

// The distributions of one round, as verify_drafts() takes them.
struct RoundDistributions {
  Distribution target, draft;

  RoundDistributions(const DistributionPair& pair, std::span<const TokenId> prefix,
                     std::span<const TokenId> drafts) {
    std::vector<TokenId> path(prefix.begin(), prefix.end());
    for (const TokenId id : drafts) {
      append(target, pair.target(path));
      append(draft, pair.draft(path));
      path.push_back(id);
    }
    append(target, pair.target(path));
  }
};

// The token whose share of [0, 1) contains u.
inline TokenId draw_from(const Distribution& distribution, double u) {
  double reached = 0;
  for (std::size_t y = 0; y < distribution.size(); ++y) {
    reached += distribution[y];
    if (u < reached) return static_cast<TokenId>(y);
  }
  return static_cast<TokenId>(distribution.size()) - 1;
}

// The chi-square that n degrees of freedom exceed with a probability of 1e-6, within 0.5 %
// (Wilson and Hilferty, 1931).
inline double chi_square_limit(double n) {
  const double root = 1 - 2 / (9 * n) + 4.753424 * std::sqrt(2 / (9 * n));
  return n * root * root * root;
}

}  // namespace hone::infer::test
