// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/kernels/gemm/tile.h"

namespace hone::kernels {

// A kernel that computes tiles of raw sums.
struct GemmVariant {
  std::string_view name;  // "avx512vnni", "highway", "plain"
  TileFunction tile;
  bool in_steps;  // supports `accumulate`; the plain kernels need the whole depth at once
};

// Returns the best variant that this process may use, or the one that HONE_FORCE_KERNEL names.
// Throws Error{InvalidArgument} for an unknown name, and Error{Unsupported} if the machine does not
// support it.
GemmVariant choose_variant(PanelKind kind, Act act);

// Returns true if this processor streams one prefetched panel at a time faster than several at
// once. Measurements: docs/notes/decode.md.
bool reads_panel_by_panel(PanelKind kind);

}  // namespace hone::kernels
