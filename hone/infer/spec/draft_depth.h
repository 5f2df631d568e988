// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "hone/infer/speculation.h"

namespace hone::infer {

// Measured times of the target's steps, by rows (tokens of the step) and sequences (in powers of
// two). They are exponentially weighted means, which adapt to the speed of the machine.
class StepCosts {
 public:
  // Times that are not positive and finite are ignored.
  void observe(Index rows, Index sequences, double seconds);
  // The time of a step of `rows` over the time of a step of `base_rows` <= rows. At least 1,
  // because less is noise. Interpolates between measured numbers of rows. Beyond them, times are
  // assumed to grow as 19 + rows. This is optimistic, so that drafts are tried and the estimate is
  // soon replaced by a measurement.
  double ratio(Index rows, Index base_rows, Index sequences) const;
  // The time of a step, in seconds; nullopt before the first step with as many sequences.
  std::optional<double> seconds(Index rows, Index sequences) const;

 private:
  using Column = std::map<Index, double>;  // rows: seconds
  static Index column_of(Index sequences);
  static double predict(const Column& column, Index rows);

  std::map<Index, Column> columns_;
};

// The other work in the step of a request's drafts.
struct StepLoad {
  Index other_rows = 0;  // rows of other sequences
  Index other_sequences = 0;
  double other_tokens = 0;  // tokens that they emit on average
  double draft_cost = 0;    // time of one draft token over the time of the step without drafts
};

// Tokens that a round of k drafts emits on average if each is accepted with probability
// `acceptance` after the ones before it: (1 - a^(k + 1)) / (1 - a), k + 1 for a = 1 (Leviathan et
// al., 2023, equation 1).
double expected_tokens(double acceptance, Index depth);

// Chooses how many tokens to draft for one request. Maximizes the tokens of the whole step over its
// time, relative to the step without drafts,
//   S(k) = (E(k) + n) / ((1 + n) (c k + v(k))),
// where E = expected_tokens, n is the number of tokens of other sequences, c the draft cost, and v
// the ratio of StepCosts. Speculation thus yields to a batch in which rows are expensive.
//
// Drafting ends when max_k S(k) was below 1.05 in three successive rounds. It is tried again after
// 64 tokens, then after 128 and 256 if that fails, and later if an acceptance of 0.9 would not pay
// off. The first rounds are short, because nothing is known about the text yet: the depth is at
// most 2, and 2 more for each draft that was examined. The depth depends on time and on earlier
// rounds, never on draws that are still to be made. It therefore changes neither the text nor its
// distribution.
class DraftDepth {
 public:
  // `acceptance` is the acceptance of other requests, from 0 to 1. It counts as much as two drafts.
  explicit DraftDepth(double acceptance = kFirstAcceptance);
  static constexpr double kFirstAcceptance = 0.75;

  // The depth of the next round, 0 to kMaxDraftDepth. Call it once per round. Without may_probe,
  // drafting that has ended is not tried again.
  Index choose(const StepCosts& costs, const StepLoad& load, bool may_probe = true);
  // Reports the round: drafts that were examined and accepted, and all tokens that were emitted.
  void record(Index examined, Index accepted, Index emitted);
  // The estimated probability that a draft is accepted; recent drafts weigh most (by 0.95 each).
  double acceptance() const { return accepted_ / examined_; }
  bool is_off() const { return is_off_; }
  // Whether drafting is being tried again.
  bool is_probing() const { return is_probing_; }

 private:
  static constexpr Index kTokensOff = 64, kMostTokensOff = 256;

  void begin_probe();
  void turn_off();

  bool is_off_ = false, is_probing_ = false;
  Index weak_rounds_ = 0, tokens_while_off_ = 0, tokens_off_ = kTokensOff;
  Index most_ = 2;  // maximum drafts of a round, from what has been examined
  double examined_ = 2, accepted_ = 0;
};

// S(k) above, for a given acceptance.
double draft_gain(double acceptance, Index depth, const StepCosts& costs, const StepLoad& load);

}  // namespace hone::infer
