// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/batch/cost_model.h"
#include "hone/infer/kv/block_pool.h"
#include "hone/infer/request.h"

namespace hone::infer {

enum class RequestKind {
  Generate,  // outputs are logits; the last one of the text is sampled
  Read,      // outputs are hidden states
};

// The rows of one sequence in a step: tokens[i] is at position first_position + i. Row i writes its
// keys and values to that position. It attends to positions 0 … first_position + i; in a group with
// a window, only to the last `window` of them. Position p of group g is in block blocks[g][p / 32].
// Blocks outside the window are kNoBlock.
struct PlannedSequence {
  RequestId id = 0;
  RequestKind kind = RequestKind::Generate;
  Index first_position = 0;
  Index cached = 0;  // tokens of the text that came from the cache so far
  std::vector<TokenId> tokens{};
  // The last `drafts` tokens are drafts, which the results verify.
  Index drafts = 0;
  // The first row whose output is wanted; tokens.size() if there is none.
  Index first_output = 0;
  std::vector<std::vector<BlockId>> blocks{};  // by group

  // The number of rows whose output is wanted.
  Index outputs() const { return static_cast<Index>(tokens.size()) - first_output; }
};

// One run of the model over the rows of all sequences. No two sequences of a plan write to the same
// block, and no sequence reads a position that another one writes in this step.
struct StepPlan {
  std::vector<BlockCopy> copies{};  // to be made in this order before any row is written
  std::vector<PlannedSequence> sequences{};
  StepShape shape{};
  double predicted_seconds = 0;
  double decode_seconds = 0;  // predicted for the rows of sequences that decode alone

  bool empty() const { return sequences.empty(); }
};

enum class StepStatus {
  Done,
  NotComputed,  // the run was abandoned: nothing changes, and the rows are planned again
  Failed,       // ends the request
};

// The result of one sequence of a plan.
struct SequenceResult {
  RequestId id = 0;
  StepStatus status = StepStatus::Done;
  // Generate, if the plan contained the last token of the text: the m drafts that were accepted and
  // the token sampled after them. Otherwise empty.
  std::vector<TokenId> tokens{};
  // The text has ended (stop token, stop string, limit): no more rows are wanted.
  bool finished = false;
};

// Sequences of the plan that are missing were not computed.
struct StepResult {
  std::vector<SequenceResult> sequences{};
  double seconds = 0;  // duration of the run; 0 keeps it out of the cost model
};

}  // namespace hone::infer
