// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// A recipe whose first pass that quantizes has a format for each group of matrices.
struct AllocatedRecipe {
  Recipe recipe;            // without the budget, so that it can be edited and run again
  Json groups;              // [{group, format, bytes, kl}], with the predicted KL divergence
  Index bytes = 0;          // of all tensors
  double predicted_kl = 0;  // the sum over groups, in nats per token
};

// Throws Error{InvalidArgument} for a budget that no choice of formats could meet, as far as that
// is known before anything is measured. Passes before the quantization leave that open.
void check_budget(const Model& model, const Recipe& recipe, Index file_overhead);

// Chooses the formats of the first pass that quantizes for the budget recipe.allocate. The bytes of
// a file are those of the tensors and context.file_overhead. Throws Error{InvalidArgument} if the
// budget is too small for the formats that may be chosen.
AllocatedRecipe allocate(const Model& model, const Recipe& recipe, Context& context);

}  // namespace hone::compress
