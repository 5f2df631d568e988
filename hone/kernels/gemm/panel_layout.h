// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

// Plain data only: files compiled for one instruction set include this header.

namespace hone::kernels {

// Weights W[rows, cols] rearranged for the micro-kernels: panels of 16 rows, lane r of a vector
// belongs to row r, so that sums never cross lanes. Rows are padded with zero weights to 16.
//
//   F32, F16, BF16   [cols][16 rows]
//   Code8            blocks of 32 columns: [8 quads][16 rows][4 columns] unsigned codes, 512 bytes
//   Code4            blocks of 32 columns: [4][16 rows][4 columns] bytes, 256 bytes; vector j holds
//                    columns 4j…4j+3 in the low nibbles and 16+4j…16+4j+3 in the high ones
//
// Code panels begin with their scales [groups][16 rows] (f16 or f32) and, when asymmetric, zero
// points [groups][16 rows] of one byte, each part padded to 64 bytes; value = scale * (code -
// zero). Symmetric codes are stored with an offset of 8 or 128, which is then the zero point.
enum class PanelKind : std::uint8_t { F32, F16, BF16, Code8, Code4 };

inline constexpr Index kPanelRows = 16;
inline constexpr Index kBlockCols = 32;  // columns that share an activation scale

// Activations lie in groups of four rows (packed_rows.h): one record per block, byte offsets of its
// parts.
inline constexpr Index kRowGroup = 4;
inline constexpr Index kInt8Record = 192, kInt8RecordScales = 128, kInt8RecordSums = 144;
// -Σ codes times the zero point of symmetric codes.
inline constexpr Index kInt8RecordSums8 = 160, kInt8RecordSums128 = 176;

// Where the parts of a panel lie; what the micro-kernels see of a PackedMatrix.
struct PanelLayout {
  PanelKind kind = PanelKind::F32;
  bool half_scales = false;  // scales are f16, else f32
  int zero_point = 0;        // of symmetric codes
  Index cols = 0;
  Index blocks = 0;            // of 32 columns; the last one is zero-padded
  Index blocks_per_group = 1;  // blocks that share a scale
  Index panel_bytes = 0, zeros_offset = 0, codes_offset = 0;  // zeros_offset 0: symmetric

  bool has_codes() const { return kind == PanelKind::Code8 || kind == PanelKind::Code4; }
  friend bool operator==(const PanelLayout&, const PanelLayout&) = default;
};

}  // namespace hone::kernels
