// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/kernels/gemm/tile.h"

namespace hone::kernels {

// One kernel that can make tiles of raw sums.
struct GemmVariant {
  std::string_view name;  // "avx512vnni", "highway", "plain"
  TileFunction tile;
  bool in_steps;  // may continue sums; the plain kernels take the whole depth at once
};

// The best variant that this process may use, or the one HONE_FORCE_KERNEL names.
// Error{InvalidArgument} on an unknown name, Error{Unsupported} when the machine lacks it.
GemmVariant choose_variant(PanelKind kind, Act act);

}  // namespace hone::kernels
