// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Quantizes every matrix the pass's globs name, except what the recipe keeps in floating point; the
// embedding and the head follow the recipe's own specs. Measures the affected products before and
// after and the model's quality, and rolls itself back when the gate does not hold (Gate::on_fail).
std::unique_ptr<Pass> make_quantize_pass(const QuantizePass& options, const Recipe& recipe);

}  // namespace hone::compress
