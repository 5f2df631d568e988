// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/gemm/tile.h"

// f32 activations x panels of one kind, by Highway for the best enabled target.

namespace hone::kernels {

TileFunction dense_float_tile(PanelKind kind);  // F32, F16, BF16
TileFunction code_float_tile(PanelKind kind);   // panels of codes

}  // namespace hone::kernels
