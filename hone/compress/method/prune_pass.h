// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Sets a fraction of the weights of the linear layers to 0. The embedding and the head are pruned
// only if a glob of `apply` other than "*" names them. Matrices keep their type; a file in hone's
// format leaves the zeros out. The pass's evidence says for each matrix the targeted and the actual
// sparsity, the original and the remaining number of weights, and the method.
std::unique_ptr<Pass> make_pass(const PrunePass& options, const Recipe& recipe);

}  // namespace hone::compress
