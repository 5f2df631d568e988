// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/gemm/tile.h"

// int8 activations x panels of codes; TileArgs::x are Int8 records (packed_rows.h). There is one
// file per instruction set; variant.cc decides which of them may run.

namespace hone::kernels {

// The tile functions of one instruction set, in the order of PanelKind from Code8 on. On AMD's
// processors, prefetches go into the first-level cache; on others, into the second-level cache.
// AMD's processors with AvxVnni or Avx512 also have Avx512Vnni, which is faster.
using IntTiles = const TileFunction*;

// All null for an instruction set that the build leaves out (HONE_ISA).
extern const TileFunction kIntTilesAvx2[5];
extern const TileFunction kIntTilesAvx2L2[5];
extern const TileFunction kIntTilesAvxVnni[5];
extern const TileFunction kIntTilesAvx512[5];
extern const TileFunction kIntTilesAvx512Vnni[5];
extern const TileFunction kIntTilesAvx512VnniL2[5];
extern const TileFunction kIntTilesAmx[5];

}  // namespace hone::kernels
