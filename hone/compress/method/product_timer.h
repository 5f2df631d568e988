// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/compress/pass.h"

namespace hone::compress {

// Fills ms_before, ms_after and speedup. A sample is the products of all matrices that differ, with
// one row of activations and in file order, so that, as in decoding, large models stream from
// memory and small ones stay in cache. Samples of `before` and `after` are interleaved in one run.
void time_products(const Model& before, const Model& after, Context& context, PassRecord& record);

}  // namespace hone::compress
