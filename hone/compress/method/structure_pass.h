// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Removes parts of a model, so that it has fewer weights and is faster.
//   Ffn     columns of the inner layer of MLPs: rows of gate and up, columns of down
//   Heads   query heads, the same number for each key head: rows of q, columns of o
//   Layers  whole layers, one after another: the one without which the KL divergence from the
//           original, measured on a part of the calibration text, is least
// Ffn and Heads fit the matrix behind the part to what remains (remove_inputs.h).
std::unique_ptr<Pass> make_pass(const StructurePass& options, const Recipe& recipe);

}  // namespace hone::compress
