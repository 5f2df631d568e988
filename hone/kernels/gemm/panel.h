// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hone/core/bf16.h"
#include "hone/kernels/gemm/packed_matrix.h"

namespace hone::kernels {

// Plain access to single elements of panels. This code defines the layouts of panel_layout.h.

struct PanelLane {
  Index panel, lane;
};

// Returns the place of logical row `row`. Rows from rows() on are the up half of gate and up.
inline PanelLane locate_row(const PackedMatrix& matrix, Index row) {
  if (!matrix.is_gate_up()) return {row / kPanelRows, row % kPanelRows};
  const Index half = row / matrix.rows(), r = row % matrix.rows();
  return {2 * (r / kPanelRows) + half, r % kPanelRows};
}

template <class T>
T load_from_panel(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Returns the byte of a panel at which the record of a group begins.
inline Index record_at(const PanelLayout& layout, Index group) {
  return group * layout.group_bytes;
}

// Return the bytes at which a block's group record, its factors and its codes begin.
inline Index record_of(const PanelLayout& layout, Index block) {
  return record_at(layout, block / layout.blocks_per_group);
}
inline Index factors_of(const PanelLayout& layout, Index block) {
  return record_of(layout, block) + layout.factors_offset +
         block % layout.blocks_per_group * kFactorBytes;
}
inline Index codes_of(const PanelLayout& layout, Index block) {
  return record_of(layout, block) + layout.codes_offset +
         block % layout.blocks_per_group * code_block_bytes(layout.kind);
}

inline int panel_code(const PanelLayout& layout, const std::byte* panel, Index lane, Index k) {
  const Index j = k % kBlockCols, quad = j / 4;
  const std::byte* codes = panel + codes_of(layout, k / kBlockCols) + lane * 4 + j % 4;
  if (layout.kind == PanelKind::Code8) return std::to_integer<int>(codes[quad * 64]);
  const int pair = std::to_integer<int>(codes[quad % 4 * 64]),
            code = quad < 4 ? pair & 15 : pair >> 4;
  const int bits = upper_bits(layout.kind);
  if (bits == 0) return code;
  const int upper = std::to_integer<int>(codes[kNibbleBytes + quad % bits * 64]);
  return code | (((upper >> (quad - quad % bits)) & ((1 << bits) - 1)) << 4);
}

// Returns byte `at` of the factors of block `block`; 1 if the layout has none.
inline std::byte panel_factor(const PanelLayout& layout, const std::byte* panel, Index block,
                              Index at) {
  if (layout.factors_offset == 0) return std::byte{1};
  return panel[factors_of(layout, block) + at];
}

// Returns element `at` of f16 values.
inline float panel_half(const std::byte* values, Index at) {
  return f16_to_float(load_from_panel<std::uint16_t>(values + at * 2));
}

// Returns the scale of column k.
inline float panel_scale(const PanelLayout& layout, const std::byte* panel, Index lane, Index k) {
  const Index block = k / kBlockCols;
  const std::byte* scales = panel + record_of(layout, block);
  if (has_minimums(layout.kind)) {
    return panel_half(scales, lane) *
           static_cast<float>(std::to_integer<int>(panel_factor(layout, panel, block, lane)));
  }
  if (layout.kind == PanelKind::Half6) {
    const Index half = k % kBlockCols / (kBlockCols / 2);
    return panel_half(scales, lane) * static_cast<float>(std::to_integer<std::int8_t>(panel_factor(
                                          layout, panel, block, half * kPanelRows + lane)));
  }
  return layout.half_scales ? panel_half(scales, lane) : load_from_panel<float>(scales + lane * 4);
}

// Returns the minimum of a block. The layout must have minimums.
inline float panel_minimum(const PanelLayout& layout, const std::byte* panel, Index lane,
                           Index block) {
  return panel_half(panel + record_of(layout, block), kPanelRows + lane) *
         static_cast<float>(
             std::to_integer<int>(panel_factor(layout, panel, block, kPanelRows + lane)));
}

inline int panel_zero(const PanelLayout& layout, const std::byte* panel, Index lane, Index block) {
  if (layout.zeros_offset == 0) return layout.zero_point;
  return std::to_integer<int>(panel[record_of(layout, block) + layout.zeros_offset + lane]);
}

inline float panel_value(const PanelLayout& layout, const std::byte* panel, Index lane, Index k) {
  const Index at = k * kPanelRows + lane;
  switch (layout.kind) {
    case PanelKind::F32:
      return load_from_panel<float>(panel + at * 4);
    case PanelKind::F16:
      return f16_to_float(load_from_panel<std::uint16_t>(panel + at * 2));
    case PanelKind::BF16:
      return bf16_to_float(load_from_panel<std::uint16_t>(panel + at * 2));
    default:
      break;
  }
  const Index block = k / kBlockCols;
  const float value = panel_scale(layout, panel, lane, k) *
                      static_cast<float>(panel_code(layout, panel, lane, k) -
                                         panel_zero(layout, panel, lane, block));
  return has_minimums(layout.kind) ? value - panel_minimum(layout, panel, lane, block) : value;
}

}  // namespace hone::kernels
