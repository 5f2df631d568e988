// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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

enum class VerifyDraw : std::uint32_t { Accept, Emit };
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

// The rule for drafts of any origin that keeps the text of every seed: token i is choose(i), what
// the target's Sampler draws after the tokens before it, and the round goes on while it equals
// drafts[i]. Used for n-gram drafts, greedy decoding, and for draft models that draw with the
// target's seed: as both share the Gumbel noise, they then agree with a probability of at least
// (1 - TV) / (1 + TV), TV the total variation of their laws (Daliri et al., "Coupling without
// Communication and Drafter-Invariant Speculative Decoding", 2024). choose() is called for
// i = 0 … accepted.
VerifiedRun verify_by_choice(std::span<const TokenId> drafts, FunctionRef<TokenId(Index i)> choose);

// The uniform numbers of a request for verify_drafts(), from Philox with key `seed` and counter
// {draw, first_position + i, 3, choice}. A position is examined in one round only, so that numbers
// are never used twice, and they depend on no other request.
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

struct RunLimits {
  std::span<const TokenId> stop_ids{};  // sorted; empty if stop tokens do not end the text
  Index max_tokens = 0;                 // how many more tokens the request may have
};
struct CutRun {
  Index kept = 0;  // tokens of the run that belong to the text, with the stop token
  std::optional<FinishReason> finished{};
};
// Ends a run at its first stop token (Stop) or at the limit (Length), whichever comes first; a stop
// token at the limit is a Stop. Error{InvalidArgument} if max_tokens is below 1.
CutRun cut_run(std::span<const TokenId> run, const RunLimits& limits);

}  // namespace hone::infer
