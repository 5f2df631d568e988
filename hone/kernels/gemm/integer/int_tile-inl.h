// SPDX-License-Identifier: Apache-2.0
// The tile loop of all int8 kernels, included by files that define `Ops` for one instruction set.
// Everything has internal linkage, so that no copy compiled for a newer CPU can be linked
// elsewhere.
//
// Per block of 32 columns and output, with u the unsigned weight code, z its zero point, q the
// activation code:   isum = Σ u·q − z·Σq   (exact in int32: |isum| <= 32·255·127 + 255·4064)
//                    acc  = fma(float(isum), scale_w · scale_x, acc)
// Ops holds vectors of kRows int32 lanes, one weight row per lane:
//   add8/add4(sum, weights, quad of x); sums start at −z·Σq, or at zero where they are int16 and
//   are widened at the end of the block.
#pragma once

// GCC 12's own intrinsics start from an uninitialized register where any value is valid.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <cstddef>
#include <cstdint>

#include "hone/kernels/gemm/tile.h"

namespace hone::kernels {
namespace {

// The prefetch distance in blocks. One stream of panels needs a long distance to fill the memory
// pipeline; four streams fill it sooner and would overflow L1. On Zen 5 with cold weights,
// prefetching makes 8 rows 2.1 times as fast and does not change one row.
constexpr int blocks_ahead(int units) { return units >= 4 ? 8 : 16; }

#define HONE_UNROLL _Pragma("GCC unroll 16")
#define HONE_INLINE inline __attribute__((always_inline))

// vpdpbusd adds four unsigned x signed byte products to an int32 lane without saturating, so the
// codes are used as stored and the zero point is subtracted through Σq.
template <class Vector>
struct DotProductOps : Vector {
  using Int = typename Vector::Int;
  using Weight8 = Int;

  template <int kBits>
  static Int zeros_from_bytes(const void* at) {
    return Vector::bytes_to_lanes(at);
  }
  template <int kBits>
  static Int symmetric_correction(const std::byte* products) {
    return Vector::broadcast(products);
  }
  template <int kBits>
  static constexpr bool sums_are_int32() {
    return true;
  }
  static Weight8 weight8(Int codes) { return codes; }
};

// A column of panels, or of halves of panels for 8-lane vectors.
struct Unit {
  const std::byte *codes, *scales, *zeros;
  float* out;
};

template <class Ops>
HONE_INLINE Unit unit_at(const TileArgs& args, Index unit, Index first_row) {
  constexpr Index kPerPanel = kPanelRows / Ops::kRows;
  const PanelLayout& layout = *args.layout;
  const std::byte* panel = args.panels + unit / kPerPanel * layout.panel_bytes;
  const Index lane = unit % kPerPanel * Ops::kRows;
  return {panel + layout.codes_offset + lane * 4, panel + lane * (layout.half_scales ? 2 : 4),
          layout.zeros_offset != 0 ? panel + layout.zeros_offset + lane : nullptr,
          args.out + first_row * args.out_stride + unit * Ops::kRows};
}

// The zero points of one group; unused for symmetric codes.
template <class Ops, int kBits>
HONE_INLINE typename Ops::Int load_zeros(const Unit& unit, Index group) {
  return unit.zeros != nullptr
             ? Ops::template zeros_from_bytes<kBits>(unit.zeros + group * kPanelRows)
             : Ops::zero_int();
}

// −z·Σq for one row of x.
template <class Ops, int kBits>
HONE_INLINE typename Ops::Int zero_correction(bool symmetric, typename Ops::Int zero,
                                              const std::byte* record, int lane) {
  if (symmetric) {
    return Ops::template symmetric_correction<kBits>(
        record + (kBits == 8 ? kInt8RecordSums128 : kInt8RecordSums8) + lane * 4);
  }
  return Ops::correction(zero, Ops::broadcast(record + kInt8RecordSums + lane * 4));
}

// Loads the scales of one group and prefetches those 16 groups ahead.
template <class Ops>
HONE_INLINE typename Ops::Float load_scales(const TileArgs& args, const Unit& unit, Index group) {
  Ops::prefetch(unit.scales + (group + 16) * kPanelRows * (args.layout->half_scales ? 2 : 4));
  return args.layout->half_scales ? Ops::load_half(unit.scales + group * kPanelRows * 2)
                                  : Ops::load(unit.scales + group * kPanelRows * 4);
}

// Prefetches the first blocks, for which the loop's own prefetches come too late. Together with the
// prefetch of scales, this gains 3 to 7 % on cold Q4_0.
template <class Ops, Index kBlockBytes, int kUnits>
HONE_INLINE void prefetch_start(const Unit (&units)[kUnits], Index first_block) {
  for (Index at = 0; at < blocks_ahead(kUnits) * kBlockBytes; at += 64) {
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      Ops::prefetch(units[p].codes + first_block * kBlockBytes + at);
    }
  }
}

// sum[p][c] += Σ_k codes[p][k] · x[c][k] over one block. x[g] are records of four rows.
template <class Ops, int kCols, int kUnits>
HONE_INLINE void add_block8(const Unit (&units)[kUnits], Index at, const std::byte* const* x,
                            typename Ops::Int (&sum)[kUnits][kCols]) {
  HONE_UNROLL for (int quad = 0; quad < 8; ++quad) {
    typename Ops::Weight8 w[kUnits];
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      const std::byte* codes = units[p].codes + at + quad * 64;
      Ops::prefetch(codes + blocks_ahead(kUnits) * 512);
      w[p] = Ops::weight8(Ops::load_int(codes));
    }
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto xs = Ops::broadcast(x[c / 4] + quad * 16 + c % 4 * 4);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) sum[p][c] = Ops::add8(sum[p][c], w[p], xs);
    }
  }
}

template <class Ops, int kCols, int kUnits>
HONE_INLINE void add_block4(const Unit (&units)[kUnits], Index at, const std::byte* const* x,
                            typename Ops::Int (&sum)[kUnits][kCols]) {
  HONE_UNROLL for (int quad = 0; quad < 4; ++quad) {
    typename Ops::Int low[kUnits], high[kUnits];
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      const std::byte* codes = units[p].codes + at + quad * 64;
      Ops::prefetch(codes + blocks_ahead(kUnits) * 256);
      const auto both = Ops::load_int(codes);
      low[p] = Ops::low_nibbles(both);
      high[p] = Ops::high_nibbles(both);
    }
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto xs = Ops::broadcast(x[c / 4] + quad * 16 + c % 4 * 4);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) sum[p][c] = Ops::add4(sum[p][c], low[p], xs);
    }
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto xs = Ops::broadcast(x[c / 4] + (quad + 4) * 16 + c % 4 * 4);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) sum[p][c] = Ops::add4(sum[p][c], high[p], xs);
    }
  }
}

// Uses registers for kUnits·kCols sums, as many accumulators, and kUnits weights, scales and zeros
// each.
template <class Ops, int kBits, int kCols, int kUnits>
HONE_INLINE void run_units(const TileArgs& args, Index first_unit, Index first_row) {
  constexpr int kGroups = (kCols + 3) / 4;
  constexpr Index kBlockBytes = kBits == 8 ? 512 : 256;
  const Index first_block = args.k_begin / kBlockCols;
  const Index last_block = (args.k_end + kBlockCols - 1) / kBlockCols;
  const Index per_group = args.layout->blocks_per_group;
  Unit units[kUnits];
  typename Ops::Float acc[kUnits][kCols], scale[kUnits];
  typename Ops::Int zero[kUnits];
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    units[p] = unit_at<Ops>(args, first_unit + p, first_row);
    scale[p] = load_scales<Ops>(args, units[p], first_block / per_group);
    zero[p] = load_zeros<Ops, kBits>(units[p], first_block / per_group);
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      acc[p][c] = args.accumulate ? Ops::load(units[p].out + c * args.out_stride) : Ops::zero();
    }
  }
  const bool symmetric = args.layout->zeros_offset == 0;
  const std::byte* x[kGroups];
  HONE_UNROLL for (int g = 0; g < kGroups; ++g) {
    x[g] = args.x + (first_row / 4 + g) * args.x_group_bytes + first_block * kInt8Record;
  }
  prefetch_start<Ops, kBlockBytes, kUnits>(units, first_block);
  Index next_group = (first_block / per_group + 1) * per_group;  // its first block
  for (Index block = first_block; block < last_block; ++block) {
    if (block == next_group) {
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
        scale[p] = load_scales<Ops>(args, units[p], block / per_group);
        zero[p] = load_zeros<Ops, kBits>(units[p], block / per_group);
      }
      next_group += per_group;
    }
    typename Ops::Int sum[kUnits][kCols];
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
        sum[p][c] = Ops::template sums_are_int32<kBits>()
                        ? zero_correction<Ops, kBits>(symmetric, zero[p], x[c / 4], c % 4)
                        : Ops::zero_int();
      }
    }
    if constexpr (kBits == 8) {
      add_block8<Ops, kCols, kUnits>(units, block * kBlockBytes, x, sum);
    } else {
      add_block4<Ops, kCols, kUnits>(units, block * kBlockBytes, x, sum);
    }
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto x_scale = Ops::broadcast_float(x[c / 4] + kInt8RecordScales + c % 4 * 4);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
        auto isum = sum[p][c];
        if constexpr (!Ops::template sums_are_int32<kBits>()) {
          isum = Ops::add(Ops::widen(isum),
                          zero_correction<Ops, kBits>(symmetric, zero[p], x[c / 4], c % 4));
        }
        acc[p][c] = Ops::fma(Ops::to_float(isum), Ops::mul(scale[p], x_scale), acc[p][c]);
      }
    }
    HONE_UNROLL for (int g = 0; g < kGroups; ++g) x[g] += kInt8Record;
  }
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      Ops::store(units[p].out + c * args.out_stride, acc[p][c]);
    }
  }
}

// Processes as many units at once as fit into the registers, then half as many, down to one.
template <class Ops, int kBits, int kCols, int kUnits>
HONE_INLINE void run_units_from(const TileArgs& args, Index unit, Index first_row) {
  const Index units = args.panel_count * (kPanelRows / Ops::kRows);
  for (; unit + kUnits <= units; unit += kUnits) {
    run_units<Ops, kBits, kCols, kUnits>(args, unit, first_row);
  }
  if constexpr (kUnits > 1) run_units_from<Ops, kBits, kCols, kUnits / 2>(args, unit, first_row);
}

template <class Ops, int kBits, int kCols>
void run_rows(const TileArgs& args, Index first_row) {
  run_units_from<Ops, kBits, kCols, Ops::units_for(kCols)>(args, 0, first_row);
}

template <class Ops, int kBits, int kCols>
void run_exactly(const TileArgs& args, Index first_row, Index cols) {
  if (cols == kCols) return run_rows<Ops, kBits, kCols>(args, first_row);
  if constexpr (kCols > 1) run_exactly<Ops, kBits, kCols - 1>(args, first_row, cols);
}

// Steps start at multiples of four rows; 13 to 16 remaining rows are split evenly.
template <class Ops, int kBits>
void run_tile(const TileArgs& args) {
  for (Index row = 0; row < args.rows;) {
    const Index left = args.rows - row;
    Index take = left < Ops::kMaxCols ? left : Ops::kMaxCols;
    if (Ops::kMaxCols == 12 && left > 12 && left <= 16) take = 8;
    run_exactly<Ops, kBits, Ops::kMaxCols>(args, row, take);
    row += take;
  }
}

}  // namespace
}  // namespace hone::kernels
