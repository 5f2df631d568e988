// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "hone/infer/spec/draft_depth.h"
#include "hone/infer/spec/draft_source.h"

namespace hone::infer {

// Speculation of all requests of an engine: how many drafts each gets, what became of them, and
// what steps cost.
class Speculator {
 public:
  // vocab: of the target.
  Speculator(std::unique_ptr<DraftSource> source, Index vocab);

  // A sequence that decodes in the next step.
  struct Candidate {
    RequestId id = 0;
    Sequence* sequence = nullptr;
    Index most = 0;  // drafts
  };
  // Chooses depths for the next step and drafts. `candidates` are all sequences that decode; one
  // after the other gets a depth, and counts the drafts of those before it. Valid until the next
  // call.
  std::span<const DraftJob> propose(std::span<const Candidate> candidates);
  // The law from which draft i of the request was drawn; empty if it was certain.
  std::span<const double> law(RequestId id, Index i) const;

  // The duration of a step in which sequences only decoded.
  void observe(Index rows, Index sequences, double seconds) {
    costs_.observe(rows, sequences, seconds);
  }
  // The outcome of a step for a sequence that decoded, with drafts or without.
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
  std::vector<DraftJob> jobs_;  // of the last step
  SpecStats totals_;
  double examined_, accepted_;  // of all requests, recent ones weighing most
};

}  // namespace hone::infer
