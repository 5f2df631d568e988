// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/infer/kv/layer_group.h"

namespace hone::infer {

// A group of one layer with one head of 8 values.
inline LayerGroup one_head(Index window) {
  return {.layers = 1, .kv_heads = 1, .key_dim = 8, .value_dim = 8, .window = window};
}

}  // namespace hone::infer
