// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

struct Result {
  Model model;
  std::vector<PassRecord> passes = {};
  bool stopped = false;  // whether a pass failed with on_fail = "stop"; then nothing may be written
  Recipe recipe = {};  // as it ran: without a budget, but with the formats that were chosen for it
  Json allocation;     // {groups, bytes, predicted_kl} of a budget; otherwise null
};

// Throws Error{InvalidArgument} for a recipe without passes, what its passes throw for this model,
// and for a budget below the smallest formats. The output takes `file_overhead` bytes beside its
// tensors. Reads no weights.
void check_recipe(const model_io::ModelFile& original, const Recipe& recipe,
                  Index file_overhead = 0);

// Whether a pass or a budget needs the inputs of layers, and so a calibration text.
bool needs_calibration(const Recipe& recipe);

// The passes of a recipe, which are not checked.
std::vector<std::unique_ptr<Pass>> make_passes(const Recipe& recipe);

// Runs the recipe's passes in order on a copy-on-write clone. The original is not changed. Formats
// for a budget are chosen when the first pass that quantizes comes; if `plan` is true, the work
// ends there.
Result compress(const model_io::ModelFile& original, const Recipe& recipe, Context& context,
                bool plan = false);

}  // namespace hone::compress
