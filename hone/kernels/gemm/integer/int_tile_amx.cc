// SPDX-License-Identifier: Apache-2.0
// One instruction multiplies 16 rows of x by a block of a panel. The integer sums are exact, and
// what follows is computed as in int_tile-inl.h, so that every bit is the same.
//
// While tiles are in use, one of the two 512-bit units neither multiplies nor converts floats: on
// an Intel Xeon (model 167), scaling the sums of a product takes 48 cycles instead of 24, and the
// product itself 33.
#if defined(HONE_ISA_LEFT_OUT)
#include "hone/kernels/gemm/integer/int_tile.h"

namespace hone::kernels {
const TileFunction kIntTilesAmx[5] = {};
}
#elif defined(__x86_64__)
#include "hone/kernels/gemm/integer/int_tile-inl.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/integer/vector512-inl.h"

namespace hone::kernels {
namespace {

constexpr Index kStripRows = 16;  // of x in a tile
// What is decoded at once, so that it stays in the first-level cache.
constexpr Index kPanelsAtOnce = 4, kPassBlocks = 8;
constexpr int kSlots = 4;  // products in flight
// Fewer rows of x are left to AVX-512 VNNI.
constexpr Index kFewestRows = 14;

using Ops = IntoL2<Vector512>;

// How many scales a panel's block has for each row: in Half6, one for each half.
template <PanelKind kKind>
constexpr int kParts = kKind == PanelKind::Half6 ? 2 : 1;

// A block of a panel as the instruction takes it: signed codes [8 quads][16 rows][4 columns].
template <PanelKind kKind>
struct alignas(64) WeightBlock {
  std::int8_t codes[512];
  float scales[kParts<kKind>][16];
  float minimums[16];  // in Min4 and Min5
};

// A block of 16 rows of x: [16 rows][32 columns].
struct alignas(64) RowBlock {
  std::int8_t codes[512];
  float scales[16];
  float negative_sums[16];  // −Σq · scale, in Min4 and Min5
};

template <PanelKind kKind>
struct Scratch {
  WeightBlock<kKind> weights[kPanelsAtOnce][kPassBlocks];
  RowBlock x[kPassBlocks];
  alignas(64) std::int32_t sums[kSlots][16][16];
};

// In assembly, because the intrinsics take no template parameter as a register's number.
template <int kTile>
HONE_INLINE void load_tile(const void* at, Index stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HONE_INLINE void store_tile(void* at) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(at), "r"(Index{64}), "i"(kTile) : "memory");
}
template <int kTile>
HONE_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kSums, int kX, int kWeights>
HONE_INLINE void multiply_tiles() {
  asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(kWeights), "i"(kX), "i"(kSums));
}

// Tiles 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 weights; products are of `depth` columns.
void configure_tiles(int depth) {
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, unused[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  } config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<std::uint8_t>(tile < 6 ? 16 : depth / 4);
    config.row_bytes[tile] = static_cast<std::uint16_t>(tile == 4 || tile == 5 ? depth : 64);
  }
  // GCC 12's intrinsic tells the compiler that eight bytes are read, not 64.
  asm volatile("ldtilecfg %0" : : "m"(config));
}

template <PanelKind kKind, int kQuad>
HONE_INLINE void decode_wide_quads(const std::byte* from, WeightBlock<kKind>& to) {
  const auto zero = _mm512_set1_epi8(kKind == PanelKind::Half6 ? 32 : 0);
  const auto codes = wide_codes<Ops, upper_bits(kKind), kQuad>(from);
  _mm512_store_si512(to.codes + kQuad * 64, _mm512_sub_epi8(codes, zero));
  if constexpr (kQuad < 7) decode_wide_quads<kKind, kQuad + 1>(from, to);
}

template <PanelKind kKind>
HONE_INLINE void decode_codes(const Unit& unit, const Place<kKind>& place, WeightBlock<kKind>& to) {
  const std::byte* from = unit.codes + place.codes();
  if constexpr (kKind == PanelKind::Code8) {
    HONE_UNROLL for (int quad = 0; quad < 8; ++quad) {
      _mm512_store_si512(to.codes + quad * 64,
                         _mm512_xor_si512(Ops::load_int(from + quad * 64), _mm512_set1_epi8(-128)));
    }
  } else if constexpr (is_four_bit(kKind)) {
    auto zero = _mm512_set1_epi8(kKind == PanelKind::Code4 ? 8 : 0);
    if (kKind == PanelKind::Code4 && unit.zeros != nullptr) {
      zero = _mm512_mullo_epi32(Ops::bytes_to_lanes(unit.zeros + place.group()),
                                _mm512_set1_epi32(0x01010101));
    }
    HONE_UNROLL for (int quad = 0; quad < 4; ++quad) {
      const auto both = Ops::load_int(from + quad * 64);
      _mm512_store_si512(to.codes + quad * 64, _mm512_sub_epi8(Ops::low_nibbles(both), zero));
      _mm512_store_si512(to.codes + quad * 64 + 256,
                         _mm512_sub_epi8(Ops::high_nibbles(both), zero));
    }
  } else {
    decode_wide_quads<kKind, 0>(from, to);
  }
}

template <PanelKind kKind>
HONE_INLINE void decode(const TileArgs& args, const Unit& unit, const Place<kKind>& place,
                        WeightBlock<kKind>& to) {
  decode_codes(unit, place, to);
  if constexpr (kKind == PanelKind::Half6) {
    Ops::store(to.scales[0], load_half_scale<Ops, 0>(unit, place));
    Ops::store(to.scales[1], load_half_scale<Ops, 1>(unit, place));
  } else if constexpr (has_minimums(kKind)) {
    const auto scales = load_block_scales<Ops>(unit, place);
    Ops::store(to.scales[0], scales.scale);
    Ops::store(to.minimums, scales.minimum);
  } else {
    Ops::store(to.scales[0], load_scales<Ops>(args, unit, place.group()));
  }
}

// One block of up to 16 rows of x; rows past the last group of four get zeros.
template <PanelKind kKind>
HONE_INLINE void collect_block(const std::byte* records, Index group_bytes, Index groups,
                               RowBlock& to) {
  HONE_UNROLL for (Index group = 0; group < kStripRows / kRowGroup; ++group) {
    const std::byte* record = records + group * group_bytes;
    __m512i first = _mm512_setzero_si512(), last = first;
    __m128i scales = _mm_setzero_si128();
    if (group < groups) {
      first = Ops::load_int(record);
      last = Ops::load_int(record + 64);
      scales = _mm_load_si128(reinterpret_cast<const __m128i*>(record + kInt8RecordScales));
    }
    _mm512_store_si512(to.codes + group * 128, first);
    _mm512_store_si512(to.codes + group * 128 + 64, last);
    _mm_store_si128(reinterpret_cast<__m128i*>(to.scales + group * kRowGroup), scales);
    if constexpr (has_minimums(kKind)) {
      float* const sums = to.negative_sums + group * kRowGroup;
      _mm_store_ps(sums, _mm_setzero_ps());
      if (group < groups) store_negative_sums(record, sums);
    }
  }
}

// The product of up to 16 rows of x and a panel over the blocks of a pass. With kDecode, the
// weights are decoded on the way; otherwise they are, already.
template <PanelKind kKind, bool kDecode>
class Product {
 public:
  HONE_INLINE Product(const TileArgs& args, Index panel, Index first_block, Scratch<kKind>& scratch)
      : args_(args),
        unit_(unit_at<Ops>(args, panel, 0)),
        place_(*args.layout, first_block),
        prefetches_(args, panel),
        first_block_(first_block),
        weights_(scratch.weights[panel % kPanelsAtOnce]),
        scratch_(scratch) {}

  HONE_INLINE void run(Index blocks, float* out, Index rows, bool accumulate) {
    HONE_UNROLL for (int r = 0; r < 16; ++r) {
      acc_[r] = accumulate && r < rows ? Ops::load(out + r * args_.out_stride) : Ops::zero();
    }
    steps_ = blocks * kParts<kKind>;
    start<0>(0);
    start<1>(1);
    store<0>(0);
    start<2>(2);
    store<1>(1);
    for (Index step = 0; step < steps_; step += kSlots) {
      advance<0>(step);
      advance<1>(step + 1);
      advance<2>(step + 2);
      advance<3>(step + 3);
    }
    HONE_UNROLL for (int r = 0; r < 16; ++r) {
      if (r < rows) Ops::store(out + r * args_.out_stride, acc_[r]);
    }
  }

 private:
  // A product takes 52 cycles; others are started before its sums are stored and added.
  template <int kSlot>
  HONE_INLINE void advance(Index step) {
    start<(kSlot + 3) % kSlots>(step + 3);
    store<(kSlot + 2) % kSlots>(step + 2);
    if (step < steps_) add<kSlot>(step);
  }

  template <int kSlot>
  HONE_INLINE void start(Index step) {
    constexpr int kX = 4 + kSlot % 2, kWeights = 6 + kSlot % 2;
    if (step >= steps_) return;
    const Index block = step / kParts<kKind>, part = step % kParts<kKind>;
    if (kDecode && part == 0) {
      prefetches_.start_block(first_block_ + block);
      prefetches_.template step<1>(0);
      decode(args_, unit_, place_, weights_[block]);
      place_.advance();
    }
    clear_tile<kSlot>();
    load_tile<kX>(scratch_.x[block].codes + part * kBlockCols / 2, kBlockCols);
    load_tile<kWeights>(weights_[block].codes + part * 256, 64);
    multiply_tiles<kSlot, kX, kWeights>();
  }

  template <int kSlot>
  HONE_INLINE void store(Index step) {
    if (step < steps_) store_tile<kSlot>(scratch_.sums[kSlot]);
  }

  template <int kSlot>
  HONE_INLINE void add(Index step) {
    const Index block = step / kParts<kKind>;
    const RowBlock& x = scratch_.x[block];
    const WeightBlock<kKind>& weights = weights_[block];
    const auto scale = Ops::load(weights.scales[step % kParts<kKind>]);
    HONE_UNROLL for (int r = 0; r < 16; ++r) {
      const auto isum = Ops::to_float(Ops::load_int(scratch_.sums[kSlot][r]));
      acc_[r] = Ops::fma(isum, Ops::mul(scale, Ops::broadcast_float(x.scales + r)), acc_[r]);
      if constexpr (has_minimums(kKind)) {
        acc_[r] = Ops::fma(Ops::load(weights.minimums), Ops::broadcast_float(x.negative_sums + r),
                           acc_[r]);
      }
    }
  }

  const TileArgs& args_;
  Unit unit_;
  Place<kKind> place_;
  PanelPrefetcher<Ops, kKind, 1> prefetches_;
  Index first_block_, steps_ = 0;
  WeightBlock<kKind>* weights_;
  Scratch<kKind>& scratch_;
  typename Ops::Float acc_[16];
};

// Up to kPanelsAtOnce panels, over at most kPassBlocks blocks.
template <PanelKind kKind>
void run_pass(const TileArgs& args, Index first_panel, Index panels, Index first_block,
              Index blocks, bool accumulate, Scratch<kKind>& scratch) {
  for (Index row = 0; row < args.rows; row += kStripRows) {
    const Index rows = args.rows - row < kStripRows ? args.rows - row : kStripRows;
    const std::byte* records =
        args.x + row / kRowGroup * args.x_group_bytes + first_block * kInt8Record;
    for (Index block = 0; block < blocks; ++block, records += kInt8Record) {
      collect_block<kKind>(records, args.x_group_bytes, (rows + kRowGroup - 1) / kRowGroup,
                           scratch.x[block]);
    }
    for (Index panel = first_panel; panel < first_panel + panels; ++panel) {
      float* out = args.out + row * args.out_stride + panel * kPanelRows;
      if (row == 0) {
        Product<kKind, true>(args, panel, first_block, scratch).run(blocks, out, rows, accumulate);
      } else {
        Product<kKind, false>(args, panel, first_block, scratch).run(blocks, out, rows, accumulate);
      }
    }
  }
}

template <PanelKind kKind>
void run_on_tiles(const TileArgs& args) {
  Scratch<kKind> scratch;
  configure_tiles(static_cast<int>(kBlockCols) / kParts<kKind>);
  const Index last_block = (args.k_end + kBlockCols - 1) / kBlockCols;
  // Weights that are used for one strip only are read in their order.
  const Index at_once = args.rows <= kStripRows ? 1 : kPanelsAtOnce;
  for (Index panel = 0; panel < args.panel_count; panel += at_once) {
    const Index left = args.panel_count - panel, panels = left < at_once ? left : at_once;
    bool accumulate = args.accumulate;
    for (Index block = args.k_begin / kBlockCols; block < last_block; block += kPassBlocks) {
      const Index ahead = last_block - block;
      run_pass<kKind>(args, panel, panels, block, ahead < kPassBlocks ? ahead : kPassBlocks,
                      accumulate, scratch);
      accumulate = true;
    }
  }
  _tile_release();
}

// Whether every code less its zero point is a signed byte. Codes of 4 bits may have zero points of
// up to 255.
template <PanelKind kKind>
bool fits_signed_bytes(const TileArgs& args) {
  if (args.layout->zeros_offset == 0) return true;
  if (kKind == PanelKind::Code8) return false;
  const Index per_group = args.layout->blocks_per_group * kBlockCols;
  const Index first = args.k_begin / per_group, last = (args.k_end - 1) / per_group;
  __m128i largest = _mm_setzero_si128();
  for (Index panel = 0; panel < args.panel_count; ++panel) {
    const std::byte* zeros =
        args.panels + panel * args.layout->panel_bytes + args.layout->zeros_offset;
    for (Index group = first; group <= last; ++group) {
      largest = _mm_max_epu8(largest, _mm_loadu_si128(reinterpret_cast<const __m128i*>(
                                          zeros + group * args.layout->group_bytes)));
    }
  }
  const __m128i excess = _mm_subs_epu8(largest, _mm_set1_epi8(-128));
  return _mm_test_all_zeros(excess, excess) != 0;
}

// Leaves few rows at the end, and zero points that are too large, to AVX-512 VNNI.
template <PanelKind kKind>
void run_amx(const TileArgs& args) {
  const TileFunction otherwise =
      kIntTilesAvx512VnniL2[static_cast<int>(kKind) - static_cast<int>(PanelKind::Code8)];
  const Index last = args.rows % kStripRows;
  TileArgs some = args;
  some.rows = last < kFewestRows ? args.rows - last : args.rows;
  if (some.rows > 0 && !fits_signed_bytes<kKind>(args)) some.rows = 0;
  if (some.rows > 0) run_on_tiles<kKind>(some);
  if (some.rows == args.rows) return;
  some.x += some.rows / kRowGroup * args.x_group_bytes;
  some.out += some.rows * args.out_stride;
  some.rows = args.rows - some.rows;
  otherwise(some);
}

}  // namespace

const TileFunction kIntTilesAmx[5] = {
    run_amx<PanelKind::Code8>, run_amx<PanelKind::Code4>, run_amx<PanelKind::Min5>,
    run_amx<PanelKind::Min4>,  run_amx<PanelKind::Half6>,
};

}  // namespace hone::kernels
#endif
