// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/compress/pass.h"

namespace hone::compress {

// Fills ms_before, ms_after and speedup. A sample is the products of all tensors in `changed` with
// one row of activations, in file order, so that, as in decoding, large models stream from memory
// and small ones stay in cache. Samples of `before` and `after` are interleaved in one run.
void time_products(std::span<const model_io::NamedMatrix> before,
                   std::span<const model_io::NamedMatrix> after, std::span<const Index> changed,
                   Context& context, PassRecord& record);

}  // namespace hone::compress
