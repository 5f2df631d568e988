// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/spec/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/philox.h"

namespace hone::infer {
namespace {

constexpr std::uint32_t kPurposeVerify = 3;  // 1 and 2: kernels::gumbel_noise()

double checked_probability(double value) {
  HONE_CHECK(std::isfinite(value) && value >= 0, "verify_drafts", "probabilities of 0 or more",
             value);
  return value;
}

using Weight = FunctionRef<double(std::size_t)>;

double total_of(std::size_t vocab, Weight weight) {
  double total = 0;
  for (std::size_t y = 0; y < vocab; ++y) total += weight(y);
  return checked_probability(total);
}

// The least y whose weights up to it exceed u times the total; never one of weight 0.
TokenId draw(std::size_t vocab, Weight weight, double total, double u) {
  std::size_t last = 0;
  double reached = 0;
  for (std::size_t y = 0; y < vocab; ++y) {
    const double w = weight(y);
    if (w <= 0) continue;
    last = y;
    reached += w;
    if (reached > u * total) break;
  }
  return static_cast<TokenId>(last);
}

// The token in the place of the rejected draft x.
TokenId substitute(std::span<const double> p, std::span<const double> q, TokenId x, double u) {
  const auto excess = [p, q](std::size_t y) { return std::max(0.0, p[y] - q[y]); };
  const double total = total_of(p.size(), excess);
  const double rounding = static_cast<double>(p.size()) * std::numeric_limits<double>::epsilon();
  if (total > rounding) return draw(p.size(), excess, total, u);
  return p[static_cast<std::size_t>(x)] > 0 ? x : draw_from_distribution(p, u);
}

std::size_t check_sizes(std::span<const double> target, std::span<const double> draft,
                        std::span<const TokenId> drafts) {
  const std::size_t vocab = target.size() / (drafts.size() + 1);
  HONE_CHECK(vocab >= 1 && target.size() == vocab * (drafts.size() + 1), "verify_drafts",
             concat(drafts.size() + 1, " target distributions"), concat(target.size(), " numbers"));
  HONE_CHECK(draft.size() == vocab * drafts.size(), "verify_drafts",
             concat(drafts.size(), " draft distributions of ", vocab, " tokens"),
             concat(draft.size(), " numbers"));
  for (const TokenId id : drafts) {
    HONE_CHECK(id >= 0 && static_cast<std::size_t>(id) < vocab, "verify_drafts",
               concat("a token id below ", vocab), id);
  }
  return vocab;
}

}  // namespace

TokenId draw_from_distribution(std::span<const double> distribution, double u) {
  const auto weight = [distribution](std::size_t y) { return distribution[y]; };
  const double total = total_of(distribution.size(), weight);
  HONE_CHECK(total > 0, "verify_drafts", "a distribution with a positive sum", total);
  return draw(distribution.size(), weight, total, u);
}

TokenId verify_draft(std::span<const double> target, std::span<const double> draft, TokenId x,
                     Index i, VerifyUniform uniform) {
  const auto at = static_cast<std::size_t>(x);
  HONE_CHECK(target.size() == draft.size() && x >= 0 && at < draft.size(), "verify_draft",
             "distributions of one vocabulary and a token of it",
             concat(target.size(), " and ", draft.size(), " probabilities, token ", x));
  const double p = checked_probability(target[at]), q = checked_probability(draft[at]);
  if (uniform(i, VerifyDraw::Accept) * q < p) return x;
  return substitute(target, draft, x, uniform(i, VerifyDraw::Emit));
}

VerifiedRun verify_drafts(std::span<const double> target, std::span<const double> draft,
                          std::span<const TokenId> drafts, VerifyUniform uniform) {
  const std::size_t vocab = check_sizes(target, draft, drafts);
  return verify_by_choice(drafts, [&](Index i) -> ChosenToken {
    const auto at = static_cast<std::size_t>(i);
    const std::span<const double> distribution = target.subspan(at * vocab, vocab);
    if (at == drafts.size())
      return draw_from_distribution(distribution, uniform(i, VerifyDraw::Emit));
    return verify_draft(distribution, draft.subspan(at * vocab, vocab), drafts[at], i, uniform);
  });
}

VerifiedRun verify_by_choice(std::span<const TokenId> drafts,
                             FunctionRef<ChosenToken(Index i)> choose) {
  VerifiedRun run;
  for (std::size_t i = 0; i <= drafts.size(); ++i) {
    const ChosenToken chosen = choose(static_cast<Index>(i));
    run.tokens.push_back(chosen.id);
    if (i == drafts.size()) break;
    ++run.examined;
    if (chosen.id != drafts[i]) break;
    ++run.accepted;
    if (chosen.ends_round) break;
  }
  return run;
}

double PositionUniforms::operator()(Index i, VerifyDraw draw) const {
  const bool is_draft = draw == VerifyDraw::Draft;
  const auto purpose = static_cast<std::uint32_t>(static_cast<Index>(draw) + (is_draft ? i : 0));
  const auto position = static_cast<std::uint32_t>(first_position_ + (is_draft ? 0 : i));
  const PhiloxBlock bits = philox(seed_, {purpose, position, kPurposeVerify, choice_});
  return open_unit_double(bits[0], bits[1]);
}

}  // namespace hone::infer
