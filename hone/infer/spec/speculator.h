// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "hone/infer/spec/draft_depth.h"
#include "hone/infer/spec/draft_source.h"

namespace hone::infer {

// Speculation for all requests of an engine: chooses the number of drafts of each, and records
// their outcome and the cost of steps.
class Speculator {
 public:
  // `vocab` is the vocabulary size of the target.
  Speculator(std::unique_ptr<DraftSource> source, Index vocab);

  // A sequence that decodes in the next step.
  struct Candidate {
    RequestId id = 0;
    Sequence* sequence = nullptr;
    Index most = 0;  // maximum number of drafts
  };
  // Chooses the depths for the next step and drafts. `candidates` are all sequences that decode.
  // They get depths one after the other, and each depth accounts for the drafts of earlier
  // candidates. The result is valid until the next call.
  std::span<const DraftJob> propose(std::span<const Candidate> candidates);
  // The distribution from which draft i of the request was drawn; empty if it was certain.
  std::span<const double> distribution(RequestId id, Index i) const;

  // Records the duration of a step in which sequences only decoded.
  void observe(Index rows, Index sequences, double seconds) {
    costs_.observe(rows, sequences, seconds);
  }
  // Records the outcome of a step for a sequence that decoded, with drafts or without.
  void record(RequestId id, Index drafted, const VerifiedRun& run);

  const SpecStats& totals() const { return totals_; }
  Index draft_rows() const { return source_->rows(); }
  // Ends the request and returns its counts.
  SpecStats forget(RequestId id);

 private:
  struct Drafting {
    DraftDepth depth;
    SpecStats stats{};
  };
  Drafting& drafting(RequestId id);
  Index choose_depth(const Candidate& candidate, const StepLoad& load, bool& is_probing);

  std::unique_ptr<DraftSource> source_;
  Index vocab_;
  StepCosts costs_;
  std::map<RequestId, Drafting> requests_;
  std::vector<DraftJob> jobs_;  // jobs of the last step
  SpecStats totals_;
  double examined_, accepted_;  // over all requests; recent drafts weigh most
};

}  // namespace hone::infer
