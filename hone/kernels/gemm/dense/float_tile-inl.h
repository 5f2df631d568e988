// SPDX-License-Identifier: Apache-2.0
// f32 activations x panels of any kind: acc = fma(w, x, acc) per column, with w decoded in
// registers. Compiled once per Highway target; see float_tile.cc and code_float_tile.cc.
#if defined(HONE_KERNELS_GEMM_FLOAT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_GEMM_FLOAT_TILE_INL_H_
#undef HONE_KERNELS_GEMM_FLOAT_TILE_INL_H_
#else
#define HONE_KERNELS_GEMM_FLOAT_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "hone/kernels/gemm/tile.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVector = hn::Vec<FloatTag>;

constexpr Index kLanes = static_cast<Index>(hn::MaxLanes(FloatTag()));
constexpr int kRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 32 : 16;
constexpr int kWidestTile = kRegisters == 32 ? 12 : 4;
// Prefetch distance in bytes of weights over all vectors. Prefetches make products with cold f32
// weights faster.
constexpr Index kBytesAhead = 8192;

// Returns the number of vectors of weight rows per pass. vecs·cols accumulators, vecs weights and
// one x must fit into the registers.
constexpr int vectors_for(int cols) {
  const int limit = static_cast<int>(4 * kPanelRows / kLanes);
  int vectors = 1;
  while (2 * vectors <= std::min(limit, 8) && 2 * vectors * (cols + 1) + 1 <= kRegisters) {
    vectors *= 2;
  }
  return vectors;
}

// Reads the weights of one vector of rows column by column.
template <PanelKind kKind>
struct DenseReader {
  static constexpr Index kElement = kKind == PanelKind::F32 ? 4 : 2;
  const std::byte* at = nullptr;
  Index ahead = 0;

  HWY_INLINE void open(const TileArgs& args, Index unit, Index bytes) {
    ahead = bytes;
    constexpr Index kPerPanel = kPanelRows / kLanes;
    at = args.panels + unit / kPerPanel * args.layout->panel_bytes +
         (unit % kPerPanel * kLanes + args.k_begin * kPanelRows) * kElement;
  }
  HWY_INLINE FloatVector next(FloatTag d) {
    const std::byte* from = at;
    at += kPanelRows * kElement;
    hwy::Prefetch(from + ahead);
    if constexpr (kKind == PanelKind::F32) {
      return hn::Load(d, reinterpret_cast<const float*>(from));
    } else if constexpr (kKind == PanelKind::F16) {
      const hn::Rebind<hwy::float16_t, FloatTag> d16;
      return hn::PromoteTo(d, hn::Load(d16, reinterpret_cast<const hwy::float16_t*>(from)));
    } else {
      const hn::Rebind<hwy::bfloat16_t, FloatTag> d16;
      return hn::PromoteTo(d, hn::Load(d16, reinterpret_cast<const hwy::bfloat16_t*>(from)));
    }
  }
};

// value = scale * (code - zero); Min4 and Min5 then subtract the minimum. Each 32-bit lane has one
// quad of four columns. In kinds with minimums, scale * code is exact, so a value is rounded once.
template <PanelKind kKind>
struct CodeReader {
  using IntTag = hn::RebindToSigned<FloatTag>;
  using IntVector = hn::Vec<IntTag>;
  static constexpr bool kMinimums = has_minimums(kKind);
  static constexpr int kUpperBits = upper_bits(kKind);
  static constexpr bool kScaled = has_factors(kKind);
  // Columns between loads of scales.
  static constexpr Index kStep = kKind == PanelKind::Half6 ? kBlockCols / 2 : kBlockCols;

  const PanelLayout* layout = nullptr;
  const std::byte* panel = nullptr;
  const std::byte *record = nullptr, *factors = nullptr, *codes = nullptr;  // parts of the block
  Index lane = 0, k = 0;
  IntVector quads, zero;
  FloatVector scale, minimum;

  HWY_INLINE void open(const TileArgs& args, Index unit, Index) {
    constexpr Index kPerPanel = kPanelRows / kLanes;
    layout = args.layout;
    lane = unit % kPerPanel * kLanes;
    k = args.k_begin;
    panel = args.panels + unit / kPerPanel * layout->panel_bytes;
    quads = zero = hn::Zero(IntTag());
    scale = minimum = hn::Zero(FloatTag());
  }

  HWY_INLINE FloatVector next(FloatTag d) {
    const IntTag di;
    const Index j = k % kBlockCols;
    if (j == 0) open_block(k / kBlockCols);
    if (j % kStep == 0) {
      if constexpr (kScaled) {
        load_scaled_block(d, j / kStep);
      } else {
        load_group(d);
      }
    }
    if (j % 4 == 0) load_quad(di, j / 4);
    const auto code = hn::And(quads, hn::Set(di, is_four_bit(kKind) ? 15 : 255));
    quads = hn::ShiftRight<8>(quads);
    ++k;
    const auto value = hn::Mul(scale, hn::ConvertTo(d, hn::Sub(code, zero)));
    if constexpr (kMinimums) return hn::Sub(value, minimum);
    return value;
  }

  HWY_INLINE void open_block(Index block) {
    const Index group = block / layout->blocks_per_group;
    const Index in_group = block - group * layout->blocks_per_group;
    record = panel + group * layout->group_bytes;
    factors = record + layout->factors_offset + in_group * kFactorBytes;
    codes = record + layout->codes_offset + in_group * code_block_bytes(kKind) + lane * 4;
  }

  HWY_INLINE IntVector load_codes(IntTag di, Index at) {
    return hn::LoadU(di, reinterpret_cast<const std::int32_t*>(codes + at));
  }

  HWY_INLINE void load_quad(IntTag di, Index quad) {
    if constexpr (kKind == PanelKind::Code8) {
      quads = load_codes(di, quad * 64);
      return;
    }
    quads = load_codes(di, quad % 4 * 64);
    if (quad >= 4) quads = hn::ShiftRight<4>(quads);
    if constexpr (kUpperBits > 0) {
      constexpr int kMask = ((1 << kUpperBits) - 1) * 0x01010101;
      const Index vector = quad % kUpperBits;
      const auto upper = hn::ShiftRightSame(load_codes(di, kNibbleBytes + vector * 64),
                                            static_cast<int>(quad - vector));
      quads = hn::Or(hn::And(quads, hn::Set(di, 0x0f0f0f0f)),
                     hn::ShiftLeft<4>(hn::And(upper, hn::Set(di, kMask))));
    }
  }

  // Loads the f16 of every lane from byte `offset` of the record on.
  HWY_INLINE FloatVector load_halves(FloatTag d, Index offset) {
    const hn::Rebind<hwy::float16_t, FloatTag> d16;
    const auto* half = reinterpret_cast<const hwy::float16_t*>(record + offset);
    return hn::PromoteTo(d, hn::LoadU(d16, half + lane));
  }

  // Loads the group's values at byte `offset` of the record, times the factors from `factor` on.
  template <class Byte>
  HWY_INLINE FloatVector load_scaled(FloatTag d, Index offset, Index factor) {
    const hn::Rebind<Byte, FloatTag> d8;
    const auto group = load_halves(d, offset);
    if (layout->factors_offset == 0) return group;
    const auto* bytes = reinterpret_cast<const Byte*>(factors + factor);
    const auto wide = hn::PromoteTo(IntTag(), hn::LoadU(d8, bytes + lane));
    return hn::Mul(group, hn::ConvertTo(d, wide));
  }

  HWY_INLINE void load_scaled_block(FloatTag d, Index half) {
    zero = hn::Set(IntTag(), layout->zero_point);
    if constexpr (kMinimums) {
      scale = load_scaled<std::uint8_t>(d, 0, 0);
      minimum = load_scaled<std::uint8_t>(d, 2 * kPanelRows, kPanelRows);
    } else {
      scale = load_scaled<std::int8_t>(d, 0, half * kPanelRows);
    }
  }

  HWY_INLINE void load_group(FloatTag d) {
    const IntTag di;
    if (layout->half_scales) {
      scale = load_halves(d, 0);
    } else {
      scale = hn::LoadU(d, reinterpret_cast<const float*>(record) + lane);
    }
    if (layout->zeros_offset == 0) {
      zero = hn::Set(di, layout->zero_point);
    } else {
      const hn::Rebind<std::uint8_t, FloatTag> d8;
      const auto* zeros = reinterpret_cast<const std::uint8_t*>(record + layout->zeros_offset);
      zero = hn::PromoteTo(di, hn::LoadU(d8, zeros + lane));
    }
  }
};

template <class Reader, int kCols, int kVectors, bool kSingle>
HWY_INLINE void run_vectors(const TileArgs& args, Index first_unit, Index first_row) {
  const FloatTag d;
  constexpr int kGroups = (kCols + 3) / 4;
  constexpr Index kStep = kSingle ? 1 : 4;  // floats of x per column
  float* out = args.out + first_row * args.out_stride + first_unit * kLanes;
  FloatVector acc[kVectors][kCols];
  HWY_UNROLL(12) for (int v = 0; v < kVectors; ++v) {
    HWY_UNROLL(12) for (int c = 0; c < kCols; ++c) {
      acc[v][c] =
          args.accumulate ? hn::Load(d, out + c * args.out_stride + v * kLanes) : hn::Zero(d);
    }
  }
  const float* x[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    x[g] = reinterpret_cast<const float*>(args.x + (first_row / 4 + g) * args.x_group_bytes) +
           args.k_begin * kStep;
  }
  Reader readers[kVectors];
  for (int v = 0; v < kVectors; ++v) readers[v].open(args, first_unit + v, kBytesAhead / kVectors);
  for (Index k = args.k_begin; k < args.k_end; ++k) {
    FloatVector w[kVectors];
    HWY_UNROLL(12) for (int v = 0; v < kVectors; ++v) w[v] = readers[v].next(d);
    HWY_UNROLL(12) for (int c = 0; c < kCols; ++c) {
      const auto xs = hn::Set(d, x[c / 4][c % 4]);
      HWY_UNROLL(12) for (int v = 0; v < kVectors; ++v) {
        acc[v][c] = hn::MulAdd(w[v], xs, acc[v][c]);
      }
    }
    HWY_UNROLL(12) for (int g = 0; g < kGroups; ++g) x[g] += kStep;
  }
  HWY_UNROLL(12) for (int v = 0; v < kVectors; ++v) {
    HWY_UNROLL(12) for (int c = 0; c < kCols; ++c) {
      hn::Store(acc[v][c], d, out + c * args.out_stride + v * kLanes);
    }
  }
}

// Processes as many vectors at once as fit into the registers, then half as many, down to one.
// Readers of codes continue with one vector at once, because their loops take the longest to
// compile.
template <class Reader, int kCols, int kVectors, bool kSingle>
HWY_INLINE void run_vectors_from(const TileArgs& args, Index unit, Index first_row) {
  const Index units = args.panel_count * (kPanelRows / kLanes);
  for (; unit + kVectors <= units; unit += kVectors) {
    run_vectors<Reader, kCols, kVectors, kSingle>(args, unit, first_row);
  }
  if constexpr (kVectors > 1) {
    constexpr int kFewer = requires { Reader::kScaled; }
    ? 1 : kVectors / 2;
    run_vectors_from<Reader, kCols, kFewer, kSingle>(args, unit, first_row);
  }
}

template <class Reader, int kCols>
void run_exactly(const TileArgs& args, Index first_row, Index cols) {
  if (cols == kCols) {
    return run_vectors_from<Reader, kCols, vectors_for(kCols), false>(args, 0, first_row);
  }
  if constexpr (kCols > 1) run_exactly<Reader, kCols - 1>(args, first_row, cols);
}

// Steps start at multiples of four rows; 13 to 16 remaining rows are split evenly.
template <class Reader, int kWidest>
void run_tile(const TileArgs& args) {
  if (args.single_row) return run_vectors_from<Reader, 1, vectors_for(1), true>(args, 0, 0);
  for (Index row = 0; row < args.rows;) {
    const Index left = args.rows - row;
    const Index take =
        kWidest == 12 && left > 12 && left <= 16 ? 8 : std::min<Index>(left, kWidest);
    run_exactly<Reader, kWidest>(args, row, take);
    row += take;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
