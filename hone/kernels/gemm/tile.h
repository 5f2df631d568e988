// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "hone/core/index.h"
#include "hone/kernels/gemm/panel_layout.h"

// Contains only plain data, because files compiled for one instruction set include this header.

namespace hone::kernels {

// A tile of raw sums: out[m][16 p + lane] (+)= Σ_k x[m][k] · W[16 p + lane][k] for k in [k_begin,
// k_end). Splitting k over several calls does not change the result.
struct TileArgs {
  const PanelLayout* layout;
  const std::byte* panels;  // the first panel of the tile
  Index panel_count;
  const std::byte* x;  // PackedRows::data() at a group of four rows
  Index x_group_bytes;
  bool single_row;       // Float32 x in one row: contiguous instead of interleaved
  Index rows;            // rows of x in the tile
  Index k_begin, k_end;  // multiples of 32, except at the end of the matrix
  float* out;            // aligned to 64
  Index out_stride;      // floats between rows of x, a multiple of 16
  bool accumulate;       // add to the sums in `out` instead of starting from zero
  bool panel_by_panel;   // reads one panel, not four, at once for few rows of x; changes no bit
};

using TileFunction = void (*)(const TileArgs&);

// These accumulate in double and require the whole depth in one call (k_begin 0, accumulate false).
void plain_int8_tile(const TileArgs& args);
void plain_float_tile(const TileArgs& args);

}  // namespace hone::kernels
