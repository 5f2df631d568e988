// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/compress/pass.h"

namespace hone::compress {

// Fills ms_before, ms_after and speedup: the products of all tensors in `changed`, one row of
// activations each, in file order (a large model streams from memory, a small one stays in cache:
// as decode does), with the matrices of `before` and of `after` interleaved in one run.
void time_products(std::span<const model_io::NamedMatrix> before,
                   std::span<const model_io::NamedMatrix> after, std::span<const Index> changed,
                   Context& context, PassRecord& record);

}  // namespace hone::compress
