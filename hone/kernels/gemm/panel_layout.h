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
//   Code4            blocks of 32 columns: [4][16 rows][4 columns] bytes, 256 bytes; vector j holds
//                    columns 4j…4j+3 in the low nibbles and 16+4j…16+4j+3 in the high ones
//
// Code panels begin with their scales [groups][16 rows] (f16 or f32) and, if asymmetric, zero
// points [groups][16 rows] of one byte. Each part is padded to 64 bytes; value = scale * (code -
// zero). Symmetric codes are stored with an offset of 8 or 128, which is their zero point.
// Symmetric codes with a scale for each block have the scales [16 rows] of a block directly in
// front of its codes, so that processors see one stream of bytes. On Zen 5, one row of cold Q4_0
// takes 0.93 of the time that it takes with all scales in front, of cold Q8_0 0.97.
//
//   Min4, Min5       codes of 4 or 5 bits, value = scale * code - minimum
//   Half6            codes of 6 bits (plus 32), value = scale * code, one scale per 16 columns
//
// These begin with [groups][16 rows] f16 scales, each group followed in Min4 and Min5 by the f16
// minimums of its 16 rows. A group is one block, or several. Then there are 32 bytes for each
// block, of whose product with the group's an f32 holds every bit: in Min4 and Min5 [16 rows] u8
// factors of the scale and [16 rows] of the minimum; in Half6 [16 rows] i8 factors of the scale for
// the first 16 columns and [16 rows] for the others. Each part is padded to 64 bytes.
//
// The lower four bits of these codes lie as in Code4. The n = 1 or 2 upper ones follow in each
// block, 64·n bytes [n][16 rows][4 columns]: those of columns 4q…4q+3 are in vector q mod n, from
// bit q − q mod n on.
enum class PanelKind : std::uint8_t { F32, F16, BF16, Code8, Code4, Min5, Min4, Half6 };

constexpr bool is_code(PanelKind kind) { return kind >= PanelKind::Code8; }
constexpr bool has_minimums(PanelKind kind) {
  return kind == PanelKind::Min5 || kind == PanelKind::Min4;
}
constexpr bool is_four_bit(PanelKind kind) {
  return kind == PanelKind::Code4 || kind == PanelKind::Min4;
}
// The bits of a code that do not lie with the lower four.
constexpr int upper_bits(PanelKind kind) {
  return kind == PanelKind::Half6 ? 2 : kind == PanelKind::Min5 ? 1 : 0;
}

inline constexpr Index kPanelRows = 16;
inline constexpr Index kBlockCols = 32;                // columns that share an activation scale
inline constexpr Index kFactorBytes = 2 * kPanelRows;  // of one block
inline constexpr Index kNibbleBytes = kPanelRows * kBlockCols / 2;  // of a block, the lower bits
// The codes of one block.
constexpr Index code_block_bytes(PanelKind kind) {
  return kind == PanelKind::Code8 ? 2 * kNibbleBytes : kNibbleBytes + 64 * upper_bits(kind);
}
inline constexpr int kSuperBlockShift = 3;  // a group with factors has 2^3 blocks

// Activations are stored in groups of four rows with one record per block (packed_rows.h). These
// are the byte offsets of its parts.
inline constexpr Index kRowGroup = 4;
// The sums are pairs of int16: -Σ of all codes, then -Σ of the first 16 columns.
inline constexpr Index kInt8Record = 192, kInt8RecordScales = 128, kInt8RecordSums = 144;
// -Σ codes times the zero points of symmetric codes.
inline constexpr Index kInt8RecordSums8 = 160, kInt8RecordSums128 = 176;

// The layout of a PackedMatrix as the micro-kernels use it.
struct PanelLayout {
  PanelKind kind = PanelKind::F32;
  bool half_scales = false;  // whether scales are f16 rather than f32
  int zero_point = 0;        // of symmetric codes
  Index cols = 0;
  Index blocks = 0;            // of 32 columns; the last one is zero-padded
  Index blocks_per_group = 1;  // blocks that share a scale
  Index scale_stride = 0;      // from group to group
  Index code_stride = 0;       // from block to block
  Index panel_bytes = 0, zeros_offset = 0, codes_offset = 0;  // zeros_offset is 0 if symmetric
  Index factors_offset = 0;  // of the 32 bytes per block; 0 if every factor is 1

  bool has_codes() const { return is_code(kind); }
  friend bool operator==(const PanelLayout&, const PanelLayout&) = default;
};

}  // namespace hone::kernels
