// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/infer/request.h"

namespace hone::infer {

// The output of one round of speculation: the accepted drafts and, unless one of them ends the
// text, one more token, which comes from the target.
struct VerifiedRun {
  std::vector<TokenId> tokens{};
  // Numbers of drafts. Drafts after a rejection or the end of the text are not examined.
  Index examined = 0, accepted = 0;
};

enum class VerifyDraw : std::uint32_t { Accept, Emit, Draft };
// Returns a uniform number in (0, 1) for a draw at position i of the round.
using VerifyUniform = FunctionRef<double(Index i, VerifyDraw draw)>;

// The rule for drafts that were drawn from distributions q_i (Leviathan et al., "Fast Inference
// from Transformers via Speculative Decoding", 2023; Chen et al., 2023). For i = 1 … k, with u
// uniform, draft x_i is accepted if u q_i(x_i) < p_i(x_i). At the first rejection, a token is drawn
// from the distribution proportional to max(0, p_i - q_i) and emitted instead. If all drafts are
// accepted, a token is drawn from p_{k+1}. The tokens then have the distribution of the target for
// any q.
//
// target [k + 1, vocab] contains p_i and draft [k, vocab] contains q_i, both after the same
// sampling chain, with the drafts before i in the history; drafts [k]. If p_i = q_i up to rounding,
// there is nothing from which to draw a substitute for a rejected draft. Then x_i is emitted, or a
// token drawn from p_i if p_i(x_i) is 0. Throws Error{InvalidArgument} for sizes that do not match,
// ids beyond the vocabulary, and probabilities that are negative or not finite where they are used.
VerifiedRun verify_drafts(std::span<const double> target, std::span<const double> draft,
                          std::span<const TokenId> drafts, VerifyUniform uniform);

// One position of verify_drafts(): target and draft [vocab] are p_i and q_i. Returns x = drafts[i]
// if it is accepted, otherwise its substitute, which is another token unless p_i = q_i up to
// rounding.
TokenId verify_draft(std::span<const double> target, std::span<const double> draft, TokenId x,
                     Index i, VerifyUniform uniform);

// The token of `distribution` at which the sum of its probabilities first exceeds u, in (0, 1),
// times their total.
TokenId draw_from_distribution(std::span<const double> distribution, double u);

// A token that the target chose.
struct ChosenToken {
  ChosenToken(TokenId chosen, bool ends = false) : id(chosen), ends_round(ends) {}
  TokenId id;
  bool ends_round;  // the text ends here, so that no later draft is examined
};

// The rule that keeps the text of every seed, for drafts of any origin. Token i is choose(i), which
// the target's Sampler draws after the tokens before it. The round continues while it equals
// drafts[i] and does not end the text. Used for n-gram drafts, greedy decoding, and draft models
// that draw with the target's seed. Target and draft model then share the Gumbel noise, and agree
// with a probability of at least (1 - TV) / (1 + TV), where TV is the total variation distance of
// their distributions (Daliri et al., "Coupling without Communication and Drafter-Invariant
// Speculative Decoding", 2024). choose() is called once for each token of the result, in order.
VerifiedRun verify_by_choice(std::span<const TokenId> drafts,
                             FunctionRef<ChosenToken(Index i)> choose);

// The uniform numbers of a request for verify_drafts(), from Philox with key `seed` and counter
// {draw, first_position + i, 3, choice}. For VerifyDraw::Draft, by which drafts are drawn, the
// counter is {draw + i, first_position, 3, choice}. first_position is the position of the round's
// first draft. A position is examined in only one round, so numbers are never used twice. They do
// not depend on other requests. Drafts that were not examined are drawn again in the next round,
// with its numbers.
class PositionUniforms {
 public:
  PositionUniforms(const SamplingParams& sampling, Index first_position)
      : seed_(sampling.seed), choice_(sampling.choice), first_position_(first_position) {}
  double operator()(Index i, VerifyDraw draw) const;

 private:
  std::uint64_t seed_;
  std::uint32_t choice_;
  Index first_position_;
};

}  // namespace hone::infer
