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

// The best variant that this process may use, or the one that HONE_FORCE_KERNEL names. Throws
// Error{InvalidArgument} for an unknown name, Error{Unsupported} if the machine does not support
// it.
GemmVariant choose_variant(PanelKind kind, Act act);

// Whether this processor reads one prefetched panel faster than several at once: with weights in no
// cache, one row takes 0.97 (Q8_0), 0.88 (Q4_0), 0.83 (Q4_K) and 0.63 (Q6_K) of the time on Zen 5.
// On Intel's processors, decoding takes 0.92 of the time with Q4_K_M, 1.02 with Q8_0 and 1.03 with
// Q4_0.
bool reads_panel_by_panel(PanelKind kind);

}  // namespace hone::kernels
