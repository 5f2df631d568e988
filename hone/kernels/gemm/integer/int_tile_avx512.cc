// SPDX-License-Identifier: Apache-2.0
#if defined(HONE_ISA_LEFT_OUT)
#include "hone/kernels/gemm/integer/int_tile.h"

namespace hone::kernels {
const TileFunction kIntTilesAvx512[5] = {};
}
#elif defined(__x86_64__)
#include "hone/kernels/gemm/integer/int_tile-inl.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/integer/vector512-inl.h"

namespace hone::kernels {
namespace {

// vpmaddubsw saturates at int16, which must not happen:
//   4 bits: a pair of products is at most 2·15·127 = 3810; the eight of one block add up to 30,480
//           < 32,768 in int16 before they are widened.
//   8 bits: codes become signed (zero point minus 128) and pass their sign to x: |w| <= 128 is
//           unsigned and |x| <= 127, so a pair is at most 2·128·127 = 32,512; widened at once.
//   5 and 6 bits: two pairs are at most 2·2·63·127 = 32,004.
struct Avx512Ops : Vector512 {
  static constexpr bool kOneInstruction = false;
  struct Weight8 {
    Int magnitude;
    __mmask64 negative;
  };

  static Int shift_zero(Int zero) {
    return _mm512_and_si512(_mm512_sub_epi32(zero, _mm512_set1_epi32(128)),
                            _mm512_set1_epi32(0xffff));
  }
  template <int kBits>
  static Int zeros_from_bytes(const void* at) {
    return kBits == 8 ? shift_zero(bytes_to_lanes(at)) : bytes_to_lanes(at);
  }
  static Int widen(Int sum16) { return _mm512_madd_epi16(sum16, _mm512_set1_epi16(1)); }
  static Weight8 weight8(Int codes) {
    const Int w = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
    return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
  }
  static Int add8(Int sum, const Weight8& w, Int x) {
    const Int signed_x = _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x);
    const Int pairs = _mm512_maddubs_epi16(w.magnitude, signed_x);
    return in_order(_mm512_add_epi32(sum, widen(pairs)));
  }
  static Int add_two(Int sum, Int w0, Int x0, Int w1, Int x1) {
    const Int pairs = _mm512_add_epi16(_mm512_maddubs_epi16(w0, x0), _mm512_maddubs_epi16(w1, x1));
    return in_order(_mm512_add_epi32(sum, widen(pairs)));
  }
  static Int add4(Int sum16, Int w, Int x) {
    return in_order(_mm512_add_epi16(sum16, _mm512_maddubs_epi16(w, x)));
  }
};

}  // namespace

const TileFunction kIntTilesAvx512[5] = HONE_INT_TILES(IntoL2<Avx512Ops>);

}  // namespace hone::kernels
#endif
