// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Whether the pass names this tensor and may change it: it is not kept in floating point, and it is
// not quantized already unless the recipe says so.
bool is_changed(const QuantizePass& options, const Recipe& recipe,
                const model_io::NamedMatrix& tensor);

// Quantizes every matrix that the pass's globs match, except those that the recipe keeps in
// floating point. The embedding and the head follow the recipe's own specs for them. Measures the
// affected products before and after and the model's quality, and rolls back if the gate does not
// hold (Gate::on_fail).
std::unique_ptr<Pass> make_pass(const QuantizePass& options, const Recipe& recipe);

}  // namespace hone::compress
