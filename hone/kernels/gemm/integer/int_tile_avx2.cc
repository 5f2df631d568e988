// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "hone/kernels/gemm/integer/int_tile-inl.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/integer/vector256-inl.h"

namespace hone::kernels {
namespace {

// vpmaddubsw saturates at int16, which must not happen:
//   4 bits: a pair of products is at most 2·15·127 = 3810; the eight of one block add up to 30,480
//           < 32,768 in int16 before they are widened.
//   8 bits: codes become signed (zero point minus 128) and pass their sign to x: |w| <= 128 is
//           unsigned and |x| <= 127, so a pair is at most 2·128·127 = 32,512; widened at once.
//   5 and 6 bits: two pairs are at most 2·2·63·127 = 32,004.
struct Avx2Ops : Vector256 {
  static constexpr bool kOneInstruction = false;
  struct Weight8 {
    Int value, magnitude;
  };

  // One unit of eight columns prepares each weight once for all of them. On Zen 5, 192 rows then
  // take 0.92 to 0.98 of the time with codes of 5, 6 and 8 bits, but 1.01 to 1.05 of it with codes
  // of 4 bits, which need less preparation.
  static constexpr int max_cols(PanelKind kind) { return is_four_bit(kind) ? 4 : 8; }
  static constexpr int units_for(int cols, int) { return cols > 4 ? 1 : 2; }

  static Int shift_zero(Int zero) {
    return _mm256_and_si256(_mm256_sub_epi32(zero, _mm256_set1_epi32(128)),
                            _mm256_set1_epi32(0xffff));
  }
  template <int kBits>
  static Int zeros_from_bytes(const void* at) {
    return kBits == 8 ? shift_zero(bytes_to_lanes(at)) : bytes_to_lanes(at);
  }
  static Int widen(Int sum16) { return _mm256_madd_epi16(sum16, _mm256_set1_epi16(1)); }
  static Weight8 weight8(Int codes) {
    const Int w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return {w, _mm256_abs_epi8(w)};
  }
  static Int add8(Int sum, const Weight8& w, Int x) {
    const Int signed_x = _mm256_sign_epi8(x, w.value);
    const Int pairs = _mm256_maddubs_epi16(w.magnitude, signed_x);
    return in_order(_mm256_add_epi32(sum, widen(pairs)));
  }
  static Int add_two(Int sum, Int w0, Int x0, Int w1, Int x1) {
    const Int pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
    return in_order(_mm256_add_epi32(sum, widen(pairs)));
  }
  static Int add4(Int sum16, Int w, Int x) {
    return in_order(_mm256_add_epi16(sum16, _mm256_maddubs_epi16(w, x)));
  }
};

}  // namespace

const TileFunction kIntTilesAvx2[5] = HONE_INT_TILES(Avx2Ops);
const TileFunction kIntTilesAvx2L2[5] = HONE_INT_TILES(IntoL2<Avx2Ops>);

}  // namespace hone::kernels
#endif
