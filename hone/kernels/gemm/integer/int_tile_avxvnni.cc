// SPDX-License-Identifier: Apache-2.0
#if defined(HONE_ISA_LEFT_OUT)
#include "hone/kernels/gemm/integer/int_tile.h"

namespace hone::kernels {
const TileFunction kIntTilesAvxVnni[5] = {};
}
#elif defined(__x86_64__)
#include "hone/kernels/gemm/integer/int_tile-inl.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/integer/vector256-inl.h"

namespace hone::kernels {
namespace {

struct AvxVnniOps : DotProductOps<Vector256> {
  static Int add8(Int sum, Int w, Int x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static Int add4(Int sum, Int w, Int x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  static Int add_two(Int sum, Int w0, Int x0, Int w1, Int x1) {
    return _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(sum, w0, x0), w1, x1);
  }
};

}  // namespace

const TileFunction kIntTilesAvxVnni[5] = HONE_INT_TILES(IntoL2<AvxVnniOps>);

}  // namespace hone::kernels
#endif
