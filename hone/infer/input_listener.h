// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "hone/core/index.h"

namespace hone::infer {

// Sees the input x [rows, cols] of a product of a layer; `product` is its place in
// model_io::layer_products(). A factored product has the input of its first factor.
using InputListener = std::function<void(Index product, const float* x, Index rows, Index cols)>;

}  // namespace hone::infer
