// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/index.h"
#include "hone/kernels/attention/kv_layout.h"
#include "hone/text/tokenizer.h"

namespace hone::infer {

// The rows of one sequence in a step: tokens at adjacent positions, after the tokens in its cache.
struct StepSequence {
  Index rows = 0;
  Index first_position = 0;
  // Blocks by group of layers (ModelRunner::kv_groups), for all positions before first_position +
  // rows. Blocks outside the window of the first row may be null.
  std::vector<kernels::BlockPointers> tables = {};
  Index logits = 1;  // the number of last rows whose logits are wanted
};

// The input of the model in one step: the rows of all sequences, one sequence after the other.
struct StepBatch {
  std::vector<text::TokenId> tokens;
  std::vector<StepSequence> sequences;

  Index rows() const { return static_cast<Index>(tokens.size()); }
  Index logits() const {
    Index count = 0;
    for (const StepSequence& sequence : sequences) count += sequence.logits;
    return count;
  }
};

}  // namespace hone::infer
