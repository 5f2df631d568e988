// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "hone/infer/spec/verify.h"

namespace hone::infer {

inline constexpr Index kMaxDraftDepth = 16;

// Measured times of the target's steps, by rows (tokens of the step) and sequences (in powers of
// two): exponentially weighted means, so that they follow the machine.
class StepCosts {
 public:
  // Times that are not positive and finite are ignored.
  void observe(Index rows, Index sequences, double seconds);
  // The time of a step of `rows` over that of a step of `base_rows` <= rows, at least 1: less is
  // noise. Interpolates between
  // measured numbers of rows; beyond them every row adds a tenth of the nearest measured step,
  // which measuring soon corrects.
  double ratio(Index rows, Index base_rows, Index sequences) const;

 private:
  using Column = std::map<Index, double>;  // rows: seconds
  static Index column_of(Index sequences);
  static double predict(const Column& column, Index rows);

  std::map<Index, Column> columns_;
};

// What surrounds the drafts of one request in a step.
struct StepLoad {
  Index other_rows = 0;       // rows of other sequences
  Index other_sequences = 0;  // each is taken to emit one token
  double draft_cost = 0;      // time of one draft token over the time of the step without drafts
};

// Tokens that a round of k drafts emits on average if each is accepted with probability
// `acceptance` after the ones before it: (1 - a^(k + 1)) / (1 - a), k + 1 for a = 1 (Leviathan et
// al., 2023, equation 1).
double expected_tokens(double acceptance, Index depth);

// Chooses how many tokens to draft for one request. Maximizes the tokens of the whole step over its
// time, relative to the step without drafts,
//   S(k) = (E(k) + n) / ((1 + n) (c k + v(k))),
// E = expected_tokens, n the other sequences, c the draft cost, v the ratio of StepCosts.
// Speculation thus yields to a batch in which rows are expensive. Drafting ends when max_k S(k) was
// below 1.05 in three successive rounds, and is tried again after 64 tokens. The depth depends on
// time and on earlier rounds, never on draws that are still to be made: it changes neither text nor
// law.
class DraftDepth {
 public:
  // The depth of the next round, 0 to kMaxDraftDepth. Call it once per round.
  Index choose(const StepCosts& costs, const StepLoad& load);
  // Reports the round: drafts that were examined and accepted, and all tokens that were emitted.
  void record(Index examined, Index accepted, Index emitted);
  // The estimated probability that a draft is accepted; recent drafts weigh most (by 0.95 each).
  double acceptance() const { return accepted_ / examined_; }
  bool is_off() const { return is_off_; }

 private:
  bool is_off_ = false, is_probing_ = false;
  Index weak_rounds_ = 0, tokens_while_off_ = 0;
  double examined_ = 2, accepted_ = 1.5;  // as if two drafts had an acceptance of 0.75
};

// S(k) above, for a given acceptance.
double draft_gain(double acceptance, Index depth, const StepCosts& costs, const StepLoad& load);

// Counts for users. A draft after the first rejection is drafted but not examined.
struct SpecStats {
  Index rounds = 0, drafted = 0, examined = 0, accepted = 0, emitted = 0;
  std::array<Index, kMaxDraftDepth> examined_at{}, accepted_at{};  // by place in the round

  // Error{InvalidArgument} if the round had more than kMaxDraftDepth drafts.
  void record(Index drafted_in_round, const VerifiedRun& run);
};

}  // namespace hone::infer
