// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/infer/request.h"

namespace hone::infer {

// What one round of speculation emits: the accepted drafts and one more token, of the target alone.
struct VerifiedRun {
  std::vector<TokenId> tokens{};
  Index examined = 0, accepted = 0;  // of the drafts; those after a rejection are not examined
};

enum class VerifyDraw : std::uint32_t { Accept, Emit, Draft };
// Uniform numbers of (0, 1), one for each draw of position i of the round.
using VerifyUniform = FunctionRef<double(Index i, VerifyDraw draw)>;

// The rule for drafts that were drawn from laws q_i (Leviathan et al., "Fast Inference from
// Transformers via Speculative Decoding", 2023; Chen et al., 2023): for i = 1 … k, with u uniform,
// draft x_i is accepted if u q_i(x_i) < p_i(x_i). At the first rejection a token of the law
// proportional to max(0, p_i - q_i) is emitted instead; if all are accepted, one of p_{k+1}. The
// tokens then have the law of the target, whatever q is.
//
// target [k + 1, vocab] holds p_i, draft [k, vocab] q_i, both after the same sampling chain, with
// the drafts before i in the history; drafts [k]. If p_i = q_i up to rounding, so that nothing is
// left to draw a rejected draft's substitute from, x_i is emitted, or a token of p_i where p_i(x_i)
// is 0. Error{InvalidArgument} on sizes that do not match, ids beyond the vocabulary, and
// probabilities that are negative or not finite where they are used.
VerifiedRun verify_drafts(std::span<const double> target, std::span<const double> draft,
                          std::span<const TokenId> drafts, VerifyUniform uniform);

// One position of verify_drafts(): target and draft [vocab] are p_i and q_i. Returns x = drafts[i]
// if it is accepted, otherwise its substitute, which is another token unless p_i = q_i up to
// rounding.
TokenId verify_draft(std::span<const double> target, std::span<const double> draft, TokenId x,
                     Index i, VerifyUniform uniform);

// The token of `law` at which its sum first exceeds u, of (0, 1), times its total.
TokenId draw_from_law(std::span<const double> law, double u);

// A token of the target.
struct ChosenToken {
  ChosenToken(TokenId chosen, bool ends = false) : id(chosen), ends_round(ends) {}
  TokenId id;
  bool ends_round;  // the text ends here, so that no later draft is examined
};

// The rule for drafts of any origin that keeps the text of every seed: token i is choose(i), what
// the target's Sampler draws after the tokens before it, and the round goes on while it equals
// drafts[i] and does not end the text. Used for n-gram drafts, greedy decoding, and for draft
// models that draw with the target's seed: as both share the Gumbel noise, they then agree with a
// probability of at least (1 - TV) / (1 + TV), TV the total variation of their laws (Daliri et al.,
// "Coupling without Communication and Drafter-Invariant Speculative Decoding", 2024). choose() is
// called for i = 0 … accepted.
VerifiedRun verify_by_choice(std::span<const TokenId> drafts,
                             FunctionRef<ChosenToken(Index i)> choose);

// The uniform numbers of a request for verify_drafts(), from Philox with key `seed` and counter
// {draw, first_position + i, 3, choice}; for VerifyDraw::Draft, by which drafts are drawn,
// {draw + i, first_position, 3, choice}, first_position being that of the round's first draft. A
// position is examined in one round only, so that numbers are never used twice, and they depend on
// no other request. Drafts that were not examined are drawn anew in the next round, by numbers of
// its own.
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
