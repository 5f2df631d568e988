// SPDX-License-Identifier: Apache-2.0
// The tile loop of all int8 kernels except AMX, included by files that define `Ops` for one
// instruction set. Everything has internal linkage, so the linker cannot use a copy compiled for a
// newer CPU elsewhere.
//
// Per block of 32 columns and output, with the unsigned weight code u, its zero point z and the
// activation code q:
//                    isum = Σ u·q − z·Σq   (exact in int32: |isum| <= 32·255·127 + 255·4064)
//                    acc  = fma(float(isum), scale_w · scale_x, acc)
// Min4 and Min5, with an exact scale_w and minimum (a group's value times a factor):
//                    isum = Σ u·q
//                    acc  = fma(float(isum), scale_w · scale_x, acc)
//                    acc  = fma(minimum, float(−Σq) · scale_x, acc)
// Half6 treats each half of a block as Code8 treats a block; each half has its own scale_w.
//
// Ops has vectors of kRows int32 lanes, one weight row per lane:
//   add8/add4(sum, weights, quad of x). If Ops::kOneInstruction multiplies and adds, sums start at
//   −z·Σq. Otherwise they start at zero, which saves the first addition; sums of add4 are then
//   int16 and are widened at the end of the block.
//   add_two(sum, weights, quad of x, weights, quad of x) for codes of up to 6 bits, in int32.
#pragma once

// GCC 12's own intrinsics start from an uninitialized register where any value is valid.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "hone/kernels/gemm/tile.h"

namespace hone::kernels {
namespace {

// Number of panel streams that are read at once.
template <class Ops, int kUnits>
constexpr int kStreams = kUnits* Ops::kRows / static_cast<int>(kPanelRows);

// One or two streams of cold weights leave the memory pipeline idle without prefetches. Four
// streams fill it by themselves; prefetches would only displace their loads.
template <class Ops, int kUnits>
constexpr bool kPrefetches = kStreams<Ops, kUnits> < 4;

// Prefetch distance in bytes. Measurements: docs/notes/decode.md.
constexpr Index kPrefetchBytes = 8192;

#define HONE_UNROLL _Pragma("GCC unroll 16")
#define HONE_INLINE inline __attribute__((always_inline))

// Forces the compiler to compute a sum or a load at this place, in order with other such values and
// prefetches. GCC 12 otherwise computes all products of a block before it adds them, which spills
// registers. It also moves the prefetches of a block in front of its loads.
template <class Int>
HONE_INLINE Int in_order(Int value) {
  asm volatile("" : "+v"(value));
  return value;
}

// vpdpbusd adds four unsigned x signed byte products to an int32 lane without saturating, so the
// codes are used as stored and the zero point is subtracted through Σq.
template <class Vector>
struct DotProductOps : Vector {
  using Int = typename Vector::Int;
  using Weight8 = Int;
  static constexpr bool kOneInstruction = true;

  template <int kBits>
  static Int zeros_from_bytes(const void* at) {
    return Vector::bytes_to_lanes(at);
  }
  static Int widen(Int sum) { return sum; }
  static Weight8 weight8(Int codes) { return codes; }
};

// Prefetches into the second-level cache only, which is faster on Intel's processors. Measurements:
// docs/notes/decode.md.
template <class Ops>
struct IntoL2 : Ops {
  static void prefetch(const void* at) {
    asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(at)));
  }
};

// A column of panels, or of half panels for 8-lane vectors. Points to its parts in the first
// record.
struct Unit {
  const std::byte *codes, *scales, *zeros, *factors;
  float* out;
};

// Position of a block: bytes from the parts in the first record to the block's own parts.
template <PanelKind kKind>
class Place {
 public:
  HONE_INLINE Place(const PanelLayout& layout, Index block)
      : layout_(layout),
        group_(block / layout.blocks_per_group * layout.group_bytes),
        in_group_(block % layout.blocks_per_group) {}

  // Offset of scales, minimums and zero points.
  HONE_INLINE Index group() const { return group_; }
  HONE_INLINE Index factors() const { return group_ + in_group_ * kFactorBytes; }
  HONE_INLINE Index codes() const { return group_ + in_group_ * code_block_bytes(kKind); }
  HONE_INLINE void advance() {
    if (++in_group_ < layout_.blocks_per_group) return;
    in_group_ = 0;
    group_ += layout_.group_bytes;
  }

 private:
  const PanelLayout& layout_;
  Index group_, in_group_;
};

template <class Ops>
HONE_INLINE Unit unit_at(const TileArgs& args, Index unit, Index first_row) {
  constexpr Index kPerPanel = kPanelRows / Ops::kRows;
  const PanelLayout& layout = *args.layout;
  const std::byte* panel = args.panels + unit / kPerPanel * layout.panel_bytes;
  const Index lane = unit % kPerPanel * Ops::kRows;
  return {panel + layout.codes_offset + lane * 4, panel + lane * (layout.half_scales ? 2 : 4),
          layout.zeros_offset != 0 ? panel + layout.zeros_offset + lane : nullptr,
          layout.factors_offset != 0 ? panel + layout.factors_offset + lane : nullptr,
          args.out + first_row * args.out_stride + unit * Ops::kRows};
}

// Returns the zero points of the group at `group`; unused for symmetric codes.
template <class Ops, int kBits>
HONE_INLINE typename Ops::Int load_zeros(const Unit& unit, Index group) {
  return unit.zeros != nullptr ? Ops::template zeros_from_bytes<kBits>(unit.zeros + group)
                               : Ops::zero_int();
}

// Returns −z·Σq for one row of x.
template <class Ops, int kBits>
HONE_INLINE typename Ops::Int zero_correction(bool symmetric, typename Ops::Int zero,
                                              const std::byte* record, int lane) {
  if (symmetric) {
    return Ops::broadcast(record + (kBits == 8 ? kInt8RecordSums128 : kInt8RecordSums8) + lane * 4);
  }
  return Ops::correction(zero, Ops::broadcast(record + kInt8RecordSums + lane * 4));
}

template <class Ops>
HONE_INLINE typename Ops::Float load_scales(const TileArgs& args, const Unit& unit, Index group) {
  const std::byte* scales = unit.scales + group;
  return args.layout->half_scales ? Ops::load_half(scales) : Ops::load(scales);
}

// Prefetches each panel from its first byte to its last, and then the next panel to be read.
// Spreads the prefetches of a block over its loads, which is faster than issuing them all before
// the loads.
template <class Ops, PanelKind kKind, int kUnits>
class PanelPrefetcher {
 public:
  HONE_INLINE PanelPrefetcher(const TileArgs& args, Index first_unit)
      : panel_bytes_(args.layout->panel_bytes),
        block_bytes_(panel_bytes_ / args.layout->blocks),
        panels_(args.panels + first_unit * Ops::kRows / kPanelRows * panel_bytes_) {}

  HONE_INLINE void start_block(Index block) {
    Index at = block * block_bytes_ + kPrefetchBytes;
    if (kPanels > 1 && at >= panel_bytes_) at += (kPanels - 1) * panel_bytes_;
    ahead_ = panels_ + at;
  }
  // Prefetches the lines of one of the kSteps steps of a block.
  template <int kSteps>
  HONE_INLINE void step(int step) const {
    if constexpr (kPrefetches<Ops, kUnits>) {
      HONE_UNROLL for (int line = kLines * step / kSteps; line < kLines * (step + 1) / kSteps;
                       ++line) {
        HONE_UNROLL for (int p = 0; p < kPanels; ++p) {
          Ops::prefetch(ahead_ + p * panel_bytes_ + line * 64);
        }
      }
    }
  }

 private:
  static constexpr int kPanels = kStreams<Ops, kUnits> == 0 ? 1 : kStreams<Ops, kUnits>;
  // The additional line is for the scales and the other parts next to the codes.
  static constexpr int kLines = static_cast<int>(code_block_bytes(kKind) / 64) + 1;
  Index panel_bytes_, block_bytes_;
  const std::byte *panels_, *ahead_ = nullptr;
};

// Prefetches the first two blocks of streams that are otherwise read without prefetches. The
// processor's own prefetches come too late for these blocks.
template <class Ops, PanelKind kKind, int kUnits>
HONE_INLINE void prefetch_start(const Unit (&units)[kUnits], Index first_byte) {
  constexpr Index kBlockBytes = code_block_bytes(kKind);
  if constexpr (!kPrefetches<Ops, kUnits>) {
    for (Index at = 0; at < 2 * kBlockBytes; at += 64) {
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
        Ops::prefetch(units[p].codes + first_byte + at);
      }
    }
  }
}

// Returns the sum of a block for one row of x, including −z·Σq.
template <class Ops, int kBits>
HONE_INLINE typename Ops::Int finish_sum(typename Ops::Int sum, bool symmetric,
                                         typename Ops::Int zero, const std::byte* record,
                                         int lane) {
  if constexpr (Ops::kOneInstruction) return sum;
  if (kBits == 8 && symmetric) return sum;  // signed codes, which have no zero point
  return Ops::add(kBits == 4 ? Ops::widen(sum) : sum,
                  zero_correction<Ops, kBits>(symmetric, zero, record, lane));
}

// Returns in every lane four codes of row c of x: columns 4·quad to 4·quad + 3 of a block. A single
// row is loaded 16 codes at a time and copied to the lanes in registers, because cold weights leave
// few loads to spare.
template <class Ops, int kCols>
HONE_INLINE typename Ops::Int quad_of(const std::byte* const* x, int c, int quad) {
  const std::byte* codes = x[c / 4] + c % 4 * kBlockCols;
  if constexpr (kCols == 1) return Ops::repeat_quad(Ops::repeat(codes + quad / 4 * 16), quad % 4);
  return Ops::broadcast(codes + quad * 4);
}

// sum[p][c] += Σ_k codes[p][k] · x[c][k] over a block. x[g] are records of four rows.
template <class Ops, int kCols, int kUnits, class Prefetches>
HONE_INLINE void add_block8(const Unit (&units)[kUnits], Index at, const std::byte* const* x,
                            const Prefetches& prefetches, typename Ops::Int (&sum)[kUnits][kCols]) {
  HONE_UNROLL for (int quad = 0; quad < 8; ++quad) {
    typename Ops::Weight8 w[kUnits];
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      w[p] = Ops::weight8(in_order(Ops::load_int(units[p].codes + at + quad * 64)));
    }
    prefetches.template step<8>(quad);
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto xs = quad_of<Ops, kCols>(x, c, quad);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) sum[p][c] = Ops::add8(sum[p][c], w[p], xs);
    }
  }
}

// Like add_block8() for 4-bit codes.
template <class Ops, int kCols, int kUnits, class Prefetches>
HONE_INLINE void add_block4(const Unit (&units)[kUnits], Index at, const std::byte* const* x,
                            const Prefetches& prefetches, typename Ops::Int (&sum)[kUnits][kCols]) {
  HONE_UNROLL for (int quad = 0; quad < 4; ++quad) {
    typename Ops::Int low[kUnits], high[kUnits];
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      const auto both = in_order(Ops::load_int(units[p].codes + at + quad * 64));
      low[p] = Ops::low_nibbles(both);
      high[p] = Ops::high_nibbles(both);
    }
    prefetches.template step<4>(quad);
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto xs = quad_of<Ops, kCols>(x, c, quad);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) sum[p][c] = Ops::add4(sum[p][c], low[p], xs);
    }
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto xs = quad_of<Ops, kCols>(x, c, quad + 4);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) sum[p][c] = Ops::add4(sum[p][c], high[p], xs);
    }
  }
}

// Returns the codes of columns 4·kQuad to 4·kQuad + 3 of a block of Min5 or Half6.
template <class Ops, int kUpperBits, int kQuad>
HONE_INLINE typename Ops::Int wide_codes(const std::byte* block) {
  constexpr int kVector = kQuad % kUpperBits;
  const auto both = Ops::load_int(block + kQuad % 4 * 64);
  return Ops::template with_upper_bits<kUpperBits, kQuad - kVector>(
      kQuad < 4 ? Ops::low_nibbles(both) : Ops::high_nibbles(both),
      Ops::load_int(block + kNibbleBytes + kVector * 64));
}

// add_block4() for quads kQuad and kQuad + 1 of a block of Min5 or Half6.
template <class Ops, PanelKind kKind, int kQuad, int kCols, int kUnits, class Prefetches>
HONE_INLINE void add_two_quads(const Unit (&units)[kUnits], Index at, const std::byte* const* x,
                               const Prefetches& prefetches,
                               typename Ops::Int (&sum)[kUnits][kCols]) {
  constexpr int kBits = upper_bits(kKind);
  typename Ops::Int first[kUnits], second[kUnits];
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    const std::byte* codes = units[p].codes + at;
    first[p] = wide_codes<Ops, kBits, kQuad>(codes);
    second[p] = wide_codes<Ops, kBits, kQuad + 1>(codes);
  }
  prefetches.template step<4>(kQuad / 2);
  HONE_UNROLL for (int c = 0; c < kCols; ++c) {
    const auto x_first = quad_of<Ops, kCols>(x, c, kQuad);
    const auto x_second = quad_of<Ops, kCols>(x, c, kQuad + 1);
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      sum[p][c] = Ops::add_two(sum[p][c], first[p], x_first, second[p], x_second);
    }
  }
}

// Uses registers for kUnits·kCols sums, as many accumulators, and kUnits each of weights, scales
// and zeros.
template <class Ops, PanelKind kKind, int kCols, int kUnits>
HONE_INLINE void run_units(const TileArgs& args, Index first_unit, Index first_row) {
  constexpr int kGroups = (kCols + 3) / 4, kBits = is_four_bit(kKind) ? 4 : 8;
  const Index first_block = args.k_begin / kBlockCols;
  const Index last_block = (args.k_end + kBlockCols - 1) / kBlockCols;
  Unit units[kUnits];
  typename Ops::Float acc[kUnits][kCols], scale[kUnits];
  typename Ops::Int zero[kUnits];
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    units[p] = unit_at<Ops>(args, first_unit + p, first_row);
    scale[p] = Ops::zero();
    zero[p] = Ops::zero_int();
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      acc[p][c] = args.accumulate ? Ops::load(units[p].out + c * args.out_stride) : Ops::zero();
    }
  }
  const bool symmetric = args.layout->zeros_offset == 0;
  const std::byte* x[kGroups];
  HONE_UNROLL for (int g = 0; g < kGroups; ++g) {
    x[g] = args.x + (first_row / 4 + g) * args.x_group_bytes + first_block * kInt8Record;
  }
  Place<kKind> place(*args.layout, first_block);
  Index loaded_group = -1;
  prefetch_start<Ops, kKind>(units, place.codes());
  PanelPrefetcher<Ops, kKind, kUnits> prefetches(args, first_unit);
  for (Index block = first_block; block < last_block; ++block, place.advance()) {
    prefetches.start_block(block);
    if (place.group() != loaded_group) {
      loaded_group = place.group();
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
        scale[p] = load_scales<Ops>(args, units[p], loaded_group);
        zero[p] = load_zeros<Ops, kBits>(units[p], loaded_group);
      }
    }
    typename Ops::Int sum[kUnits][kCols];
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
        sum[p][c] = Ops::kOneInstruction
                        ? zero_correction<Ops, kBits>(symmetric, zero[p], x[c / 4], c % 4)
                        : Ops::zero_int();
      }
    }
    if constexpr (kBits == 8) {
      add_block8<Ops, kCols, kUnits>(units, place.codes(), x, prefetches, sum);
    } else {
      add_block4<Ops, kCols, kUnits>(units, place.codes(), x, prefetches, sum);
    }
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      const auto x_scale = Ops::broadcast_float(x[c / 4] + kInt8RecordScales + c % 4 * 4);
      HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
        const auto isum = finish_sum<Ops, kBits>(sum[p][c], symmetric, zero[p], x[c / 4], c % 4);
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

// The scales and minimums of one block of Min4 or Min5.
template <class Ops>
struct BlockScales {
  typename Ops::Float scale, minimum;
};

template <class Ops, PanelKind kKind>
HONE_INLINE BlockScales<Ops> load_block_scales(const Unit& unit, const Place<kKind>& place) {
  const std::byte* group = unit.scales + place.group();
  const auto scale = Ops::load_half(group), minimum = Ops::load_half(group + 2 * kPanelRows);
  if (unit.factors == nullptr) return {scale, minimum};
  const std::byte* factors = unit.factors + place.factors();
  return {Ops::mul(scale, Ops::to_float(Ops::bytes_to_lanes(factors))),
          Ops::mul(minimum, Ops::to_float(Ops::bytes_to_lanes(factors + kPanelRows)))};
}

// Returns the scales of one half of a block of Half6.
template <class Ops, int kHalf>
HONE_INLINE typename Ops::Float load_half_scale(const Unit& unit,
                                                const Place<PanelKind::Half6>& place) {
  const std::byte* factors = unit.factors + place.factors();
  return Ops::mul(Ops::load_half(unit.scales + place.group()),
                  Ops::to_float(Ops::signed_bytes_to_lanes(factors + kHalf * kPanelRows)));
}

template <class Ops, int kCols, int kUnits>
struct Sums {
  typename Ops::Float acc[kUnits][kCols];
};

// Stores −Σq · scale for the four rows of a record, each rounded once.
HONE_INLINE void store_negative_sums(const std::byte* record, float* to) {
  const auto load = [record](Index at) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(record + at));
  };
  const __m128i sums = _mm_madd_epi16(load(kInt8RecordSums), _mm_set1_epi32(1));
  _mm_store_ps(to, _mm_mul_ps(_mm_cvtepi32_ps(sums), _mm_castsi128_ps(load(kInt8RecordScales))));
}

// Adds one block of Min4 or Min5.
template <class Ops, PanelKind kKind, int kCols, int kUnits>
HONE_INLINE void add_minimum_block(const Unit (&units)[kUnits], const Place<kKind>& place,
                                   const std::byte* const* x,
                                   const PanelPrefetcher<Ops, kKind, kUnits>& prefetches,
                                   Sums<Ops, kCols, kUnits>& sums) {
  constexpr int kBits = is_four_bit(kKind) ? 4 : 8;
  typename Ops::Int sum[kUnits][kCols];
  HONE_UNROLL for (int c = 0; c < kCols; ++c) {
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) sum[p][c] = Ops::zero_int();
  }
  if constexpr (kKind == PanelKind::Min5) {
    add_two_quads<Ops, kKind, 0>(units, place.codes(), x, prefetches, sum);
    add_two_quads<Ops, kKind, 2>(units, place.codes(), x, prefetches, sum);
    add_two_quads<Ops, kKind, 4>(units, place.codes(), x, prefetches, sum);
    add_two_quads<Ops, kKind, 6>(units, place.codes(), x, prefetches, sum);
  } else {
    add_block4<Ops, kCols, kUnits>(units, place.codes(), x, prefetches, sum);
  }
  alignas(16) float negative_sums[(kCols + 3) / 4 * 4];
  HONE_UNROLL for (int g = 0; g < (kCols + 3) / 4; ++g) {
    store_negative_sums(x[g], negative_sums + 4 * g);
  }
  BlockScales<Ops> scales[kUnits];
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    scales[p] = load_block_scales<Ops>(units[p], place);
  }
  HONE_UNROLL for (int c = 0; c < kCols; ++c) {
    const auto x_scale = Ops::broadcast_float(x[c / 4] + kInt8RecordScales + c % 4 * 4);
    const auto negative_x = Ops::broadcast_float(negative_sums + c);
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      const auto isum = kBits == 4 ? Ops::widen(sum[p][c]) : sum[p][c];
      auto& acc = sums.acc[p][c];
      acc = Ops::fma(Ops::to_float(isum), Ops::mul(scales[p].scale, x_scale), acc);
      acc = Ops::fma(scales[p].minimum, negative_x, acc);
    }
  }
}

// Returns −32·Σq over the first or the second half of a block, from a pair of kInt8RecordSums.
template <class Ops, int kHalf>
HONE_INLINE typename Ops::Int half_correction(const std::byte* pair) {
  constexpr int kFactors = kHalf == 0 ? 32 << 16 : -32 * 65536 + 32;  // for the pair's two parts
  return Ops::correction(Ops::set(kFactors), Ops::broadcast(pair));
}

// Adds one half of a block of Half6.
template <class Ops, int kHalf, int kCols, int kUnits>
HONE_INLINE void add_half_block(const Unit (&units)[kUnits], const Place<PanelKind::Half6>& place,
                                const std::byte* const* x,
                                const PanelPrefetcher<Ops, PanelKind::Half6, kUnits>& prefetches,
                                Sums<Ops, kCols, kUnits>& sums) {
  typename Ops::Int sum[kUnits][kCols];
  HONE_UNROLL for (int c = 0; c < kCols; ++c) {
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      sum[p][c] = half_correction<Ops, kHalf>(x[c / 4] + kInt8RecordSums + c % 4 * 4);
    }
  }
  add_two_quads<Ops, PanelKind::Half6, 4 * kHalf>(units, place.codes(), x, prefetches, sum);
  add_two_quads<Ops, PanelKind::Half6, 4 * kHalf + 2>(units, place.codes(), x, prefetches, sum);
  typename Ops::Float scale[kUnits];
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    scale[p] = load_half_scale<Ops, kHalf>(units[p], place);
  }
  HONE_UNROLL for (int c = 0; c < kCols; ++c) {
    const auto x_scale = Ops::broadcast_float(x[c / 4] + kInt8RecordScales + c % 4 * 4);
    HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
      sums.acc[p][c] =
          Ops::fma(Ops::to_float(sum[p][c]), Ops::mul(scale[p], x_scale), sums.acc[p][c]);
    }
  }
}

// Like run_units() for panels with a scale for each block. Scales are loaded after the integer
// sums, so that they take no registers during the sums.
template <class Ops, PanelKind kKind, int kCols, int kUnits>
HONE_INLINE void run_scaled_units(const TileArgs& args, Index first_unit, Index first_row) {
  constexpr int kGroups = (kCols + 3) / 4;
  const Index first_block = args.k_begin / kBlockCols;
  const Index last_block = (args.k_end + kBlockCols - 1) / kBlockCols;
  Unit units[kUnits];
  Sums<Ops, kCols, kUnits> sums;
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    units[p] = unit_at<Ops>(args, first_unit + p, first_row);
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      sums.acc[p][c] =
          args.accumulate ? Ops::load(units[p].out + c * args.out_stride) : Ops::zero();
    }
  }
  const std::byte* x[kGroups];
  HONE_UNROLL for (int g = 0; g < kGroups; ++g) {
    x[g] = args.x + (first_row / 4 + g) * args.x_group_bytes + first_block * kInt8Record;
  }
  Place<kKind> place(*args.layout, first_block);
  prefetch_start<Ops, kKind>(units, place.codes());
  PanelPrefetcher<Ops, kKind, kUnits> prefetches(args, first_unit);
  for (Index block = first_block; block < last_block; ++block, place.advance()) {
    prefetches.start_block(block);
    if constexpr (kKind == PanelKind::Half6) {
      add_half_block<Ops, 0>(units, place, x, prefetches, sums);
      add_half_block<Ops, 1>(units, place, x, prefetches, sums);
    } else {
      add_minimum_block<Ops, kKind>(units, place, x, prefetches, sums);
    }
    HONE_UNROLL for (int g = 0; g < kGroups; ++g) x[g] += kInt8Record;
  }
  HONE_UNROLL for (int p = 0; p < kUnits; ++p) {
    HONE_UNROLL for (int c = 0; c < kCols; ++c) {
      Ops::store(units[p].out + c * args.out_stride, sums.acc[p][c]);
    }
  }
}

// Processes as many units at once as fit into the registers, then half as many, down to one.
template <class Ops, PanelKind kKind, int kCols, int kUnits>
HONE_INLINE void run_units_from(const TileArgs& args, Index unit, Index first_row) {
  const Index units = args.panel_count * (kPanelRows / Ops::kRows);
  for (; unit + kUnits <= units; unit += kUnits) {
    if constexpr (has_factors(kKind)) {
      run_scaled_units<Ops, kKind, kCols, kUnits>(args, unit, first_row);
    } else {
      run_units<Ops, kKind, kCols, kUnits>(args, unit, first_row);
    }
  }
  if constexpr (kUnits > 1) run_units_from<Ops, kKind, kCols, kUnits / 2>(args, unit, first_row);
}

template <class Ops, PanelKind kKind, int kCols>
void run_rows(const TileArgs& args, Index first_row) {
  constexpr int kUnits = Ops::units_for(kCols, is_four_bit(kKind) ? 4 : 8);
  if (kStreams<Ops, kUnits> >= 4 && args.panel_by_panel) {
    return run_units_from<Ops, kKind, kCols, 1>(args, 0, first_row);
  }
  run_units_from<Ops, kKind, kCols, kUnits>(args, 0, first_row);
}

template <class Ops, PanelKind kKind, int kCols>
void run_exactly(const TileArgs& args, Index first_row, Index cols) {
  if (cols == kCols) return run_rows<Ops, kKind, kCols>(args, first_row);
  if constexpr (kCols > 1) run_exactly<Ops, kKind, kCols - 1>(args, first_row, cols);
}

// Steps start at multiples of four rows; 13 to 16 remaining rows are split evenly.
template <class Ops, PanelKind kKind>
void run_tile(const TileArgs& args) {
  constexpr int kMaxCols = Ops::max_cols(kKind);
  for (Index row = 0; row < args.rows;) {
    const Index left = args.rows - row;
    Index take = left < kMaxCols ? left : kMaxCols;
    if (kMaxCols == 12 && left > 12 && left <= 16) take = 8;
    run_exactly<Ops, kKind, kMaxCols>(args, row, take);
    row += take;
  }
}

// The functions of one instruction set in the order of IntTiles.
#define HONE_INT_TILES(Ops)                                             \
  {                                                                     \
    run_tile<Ops, PanelKind::Code8>, run_tile<Ops, PanelKind::Code4>,   \
        run_tile<Ops, PanelKind::Min5>, run_tile<Ops, PanelKind::Min4>, \
        run_tile<Ops, PanelKind::Half6>                                 \
  }

}  // namespace
}  // namespace hone::kernels
