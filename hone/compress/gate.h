// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Sets status and reason of a measured pass: applied when every gate holds at the unfavorable end
// of its interval, else as Gate::on_fail says (skip: skipped; stop: failed; keep: applied,
// flagged).
void apply_gate(const Gate& gate, PassRecord& record);

}  // namespace hone::compress
