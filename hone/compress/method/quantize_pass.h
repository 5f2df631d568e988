// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Quantizes every matrix that the pass's globs match, except those that the recipe keeps in
// floating point. The embedding and the head follow the recipe's own specs for them. Measures the
// affected products before and after and the model's quality, and rolls back if the gate does not
// hold (Gate::on_fail).
std::unique_ptr<Pass> make_quantize_pass(const QuantizePass& options, const Recipe& recipe);

}  // namespace hone::compress
