// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

// Contains only plain data, because files compiled for one instruction set include this header.

namespace hone::kernels {

// Weights W[rows, cols] rearranged for the micro-kernels into panels of 16 rows. Lane r of a vector
// belongs to row r, so that sums never cross lanes. Rows are padded to 16 with zero weights.
//
//   F32, F16, BF16   [cols][16 rows]
//   Code8            blocks of 32 columns: [8 quads][16 rows][4 columns] unsigned codes, 512 bytes
//   Code4            blocks of 32 columns: [4][16 rows][4 columns] bytes, 256 bytes; vector j has
//                    columns 4j…4j+3 in the low nibbles and 16+4j…16+4j+3 in the high ones
//
//   Min4, Min5       codes of 4 or 5 bits, value = scale * code - minimum
//   Half6            codes of 6 bits (plus 32), value = scale * code, one scale per 16 columns
//
// The last three kinds store the lower four bits of codes as Code4 does. The n = 1 or 2 upper bits
// follow in each block: 64·n bytes [n][16 rows][4 columns]. Vector q mod n has the upper bits of
// columns 4q…4q+3, from bit q − q mod n on.
//
// A panel of codes is a sequence of records, one for each group of blocks that share scales, padded
// to 64 bytes. A record has, without gaps:
//
//   scales           [16 rows] f16 or f32
//   minimums         [16 rows] f16, in Min4 and Min5
//   zero points      [16 rows] u8, in asymmetric Code8 and Code4, where value = scale * (code -
//                    zero). Symmetric codes have an offset of 8, 32 or 128, which is their zero
//                    point.
//   factors          32 bytes per block, in Min4, Min5 and Half6 if groups have several blocks.
//                    Block factor × group value is exact in f32. Min4 and Min5: [16 rows] u8 for
//                    the scale, then [16 rows] u8 for the minimum. Half6: [16 rows] i8 for the
//                    scale of the first 16 columns, then [16 rows] i8 for the others.
//   codes            of all blocks of the group
//
// So the processor reads one stream of bytes, which is faster than all scales of a panel in front
// of its codes. Measurements: docs/gemm.md.
enum class PanelKind : std::uint8_t { F32, F16, BF16, Code8, Code4, Min5, Min4, Half6 };

constexpr bool is_code(PanelKind kind) { return kind >= PanelKind::Code8; }
constexpr bool has_minimums(PanelKind kind) {
  return kind == PanelKind::Min5 || kind == PanelKind::Min4;
}
// Kinds of the k-quants: groups of several blocks have factors for each block.
constexpr bool has_factors(PanelKind kind) {
  return has_minimums(kind) || kind == PanelKind::Half6;
}
constexpr bool is_four_bit(PanelKind kind) {
  return kind == PanelKind::Code4 || kind == PanelKind::Min4;
}
// Returns the number of bits of a code that are not stored with the lower four.
constexpr int upper_bits(PanelKind kind) {
  return kind == PanelKind::Half6 ? 2 : kind == PanelKind::Min5 ? 1 : 0;
}

inline constexpr Index kPanelRows = 16;
inline constexpr Index kBlockCols = 32;                // columns that share an activation scale
inline constexpr Index kFactorBytes = 2 * kPanelRows;  // bytes per block
inline constexpr Index kNibbleBytes = kPanelRows * kBlockCols / 2;  // lower bits of one block
// Bytes of the codes of one block.
constexpr Index code_block_bytes(PanelKind kind) {
  return kind == PanelKind::Code8 ? 2 * kNibbleBytes : kNibbleBytes + 64 * upper_bits(kind);
}

// Activations are stored in groups of four rows with one record per block (packed_rows.h). The
// constants are the size of a record and the byte offsets of its parts.
inline constexpr Index kRowGroup = 4;
// Sums are pairs of int16: -Σ of all codes, then -Σ of the codes of the first 16 columns.
inline constexpr Index kInt8Record = 192, kInt8RecordScales = 128, kInt8RecordSums = 144;
// -Σ of all codes times the zero points of symmetric codes.
inline constexpr Index kInt8RecordSums8 = 160, kInt8RecordSums128 = 176;

// Layout of a PackedMatrix for the micro-kernels.
struct PanelLayout {
  PanelKind kind = PanelKind::F32;
  bool half_scales = false;  // whether scales are f16 rather than f32
  int zero_point = 0;        // for symmetric codes
  Index cols = 0;
  Index blocks = 0;            // blocks of 32 columns; the last one is zero-padded
  Index blocks_per_group = 1;  // blocks that share a scale; the last group may have fewer
  Index panel_bytes = 0;
  Index group_bytes = 0;  // size of a group's record
  // Offsets in a record. If zeros_offset or factors_offset is 0, there are no zero points or
  // factors.
  Index zeros_offset = 0, factors_offset = 0, codes_offset = 0;

  bool has_codes() const { return is_code(kind); }
  friend bool operator==(const PanelLayout&, const PanelLayout&) = default;
};

}  // namespace hone::kernels
