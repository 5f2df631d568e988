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

TokenId draw_from(std::span<const double> law, double u) {
  const auto weight = [law](std::size_t y) { return law[y]; };
  const double total = total_of(law.size(), weight);
  HONE_CHECK(total > 0, "verify_drafts", "a law with a positive sum", total);
  return draw(law.size(), weight, total, u);
}

// The token in the place of the rejected draft x.
TokenId substitute(std::span<const double> p, std::span<const double> q, TokenId x, double u) {
  const auto excess = [p, q](std::size_t y) { return std::max(0.0, p[y] - q[y]); };
  const double total = total_of(p.size(), excess);
  const double rounding = static_cast<double>(p.size()) * std::numeric_limits<double>::epsilon();
  if (total > rounding) return draw(p.size(), excess, total, u);
  return p[static_cast<std::size_t>(x)] > 0 ? x : draw_from(p, u);
}

std::size_t check_sizes(std::span<const double> target, std::span<const double> draft,
                        std::span<const TokenId> drafts) {
  const std::size_t vocab = target.size() / (drafts.size() + 1);
  HONE_CHECK(vocab >= 1 && target.size() == vocab * (drafts.size() + 1), "verify_drafts",
             concat(drafts.size() + 1, " target laws"), concat(target.size(), " numbers"));
  HONE_CHECK(draft.size() == vocab * drafts.size(), "verify_drafts",
             concat(drafts.size(), " draft laws of ", vocab, " tokens"),
             concat(draft.size(), " numbers"));
  for (const TokenId id : drafts) {
    HONE_CHECK(id >= 0 && static_cast<std::size_t>(id) < vocab, "verify_drafts",
               concat("a token id below ", vocab), id);
  }
  return vocab;
}

}  // namespace

VerifiedRun verify_drafts(std::span<const double> target, std::span<const double> draft,
                          std::span<const TokenId> drafts, VerifyUniform uniform) {
  const std::size_t vocab = check_sizes(target, draft, drafts);
  VerifiedRun run;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const auto p = target.subspan(i * vocab, vocab), q = draft.subspan(i * vocab, vocab);
    const auto x = static_cast<std::size_t>(drafts[i]);
    const auto at = static_cast<Index>(i);
    ++run.examined;
    if (uniform(at, VerifyDraw::Accept) * checked_probability(q[x]) < checked_probability(p[x])) {
      ++run.accepted;
      run.tokens.push_back(drafts[i]);
      continue;
    }
    run.tokens.push_back(substitute(p, q, drafts[i], uniform(at, VerifyDraw::Emit)));
    return run;
  }
  const auto k = static_cast<Index>(drafts.size());
  run.tokens.push_back(
      draw_from(target.subspan(drafts.size() * vocab), uniform(k, VerifyDraw::Emit)));
  return run;
}

VerifiedRun verify_by_choice(std::span<const TokenId> drafts,
                             FunctionRef<TokenId(Index i)> choose) {
  VerifiedRun run;
  for (std::size_t i = 0; i <= drafts.size(); ++i) {
    const TokenId chosen = choose(static_cast<Index>(i));
    run.tokens.push_back(chosen);
    if (i == drafts.size()) break;
    ++run.examined;
    if (chosen != drafts[i]) break;
    ++run.accepted;
  }
  return run;
}

double PositionUniforms::operator()(Index i, VerifyDraw draw) const {
  const PhiloxBlock bits =
      philox(seed_, {static_cast<std::uint32_t>(draw),
                     static_cast<std::uint32_t>(first_position_ + i), kPurposeVerify, choice_});
  return open_unit_double(bits[0], bits[1]);
}

CutRun cut_run(std::span<const TokenId> run, const RunLimits& limits) {
  HONE_CHECK(limits.max_tokens >= 1, "cut_run", "room for at least 1 token", limits.max_tokens);
  CutRun result;
  for (const TokenId id : run) {
    ++result.kept;
    if (std::ranges::binary_search(limits.stop_ids, id)) {
      result.finished = FinishReason::Stop;
    } else if (result.kept == limits.max_tokens) {
      result.finished = FinishReason::Length;
    }
    if (result.finished) break;
  }
  return result;
}

}  // namespace hone::infer
