// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Sets the status and reason of a measured pass. It is applied if every gate holds at the
// unfavorable end of its interval; otherwise Gate::on_fail decides (skip: skipped; stop: failed;
// keep: applied and flagged).
void apply_gate(const Gate& gate, PassRecord& record);

}  // namespace hone::compress
