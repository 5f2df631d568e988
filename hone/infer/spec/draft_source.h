// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "hone/infer/sched/sequence.h"
#include "hone/infer/speculation.h"

namespace hone::infer {

// A sequence that wants drafts, and what it gets.
struct DraftJob {
  RequestId id = 0;
  Sequence* sequence = nullptr;
  Index count = 0;                   // maximum number of drafts, at least 1
  bool wants_distributions = false;  // if drafts are drawn, also return their distributions
  std::vector<TokenId> drafts{};
  std::vector<double>
      distributions{};           // [drafts, vocab of the target]; empty if the drafts are certain
  std::exception_ptr failure{};  // ends the request
};

// Proposes tokens that could follow texts. Keeps state by request until forget().
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Fills in the drafts of the jobs, which belong to different requests.
  virtual void propose(std::span<DraftJob> jobs) = 0;
  virtual void forget(RequestId id) = 0;
  // The recent mean time of a draft, in seconds; 0 if it is negligible.
  virtual double seconds_per_draft() const { return 0; }
  // Tokens that a draft model has computed.
  virtual Index rows() const { return 0; }
};

// Drafts from an NgramIndex of each text.
std::unique_ptr<DraftSource> make_ngram_drafts();
// Drafts from the caller's function. They end before the first one that is not a token below
// `vocab`.
std::unique_ptr<DraftSource> make_function_drafts(DraftFunction function, Index vocab);

}  // namespace hone::infer
