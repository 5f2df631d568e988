// SPDX-License-Identifier: Apache-2.0
#if defined(HONE_ISA_LEFT_OUT)
#include "hone/kernels/gemm/integer/int_tile.h"

namespace hone::kernels {
const TileFunction kIntTilesAvx512Vnni[5] = {};
const TileFunction kIntTilesAvx512VnniL2[5] = {};
}  // namespace hone::kernels
#elif defined(__x86_64__)
#include "hone/kernels/gemm/integer/int_tile-inl.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/integer/vector512-inl.h"

namespace hone::kernels {
namespace {

struct Avx512VnniOps : DotProductOps<Vector512> {
  static Int add8(Int sum, Int w, Int x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static Int add4(Int sum, Int w, Int x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static Int add_two(Int sum, Int w0, Int x0, Int w1, Int x1) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, w0, x0), w1, x1);
  }
};

}  // namespace

const TileFunction kIntTilesAvx512Vnni[5] = HONE_INT_TILES(Avx512VnniOps);
const TileFunction kIntTilesAvx512VnniL2[5] = HONE_INT_TILES(IntoL2<Avx512VnniOps>);

}  // namespace hone::kernels
#endif
