// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "hone/kernels/gemm/integer/int_tile-inl.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/integer/vector512-inl.h"

namespace hone::kernels {
namespace {

struct Avx512VnniOps : DotProductOps<Vector512> {
  static Int add8(Int sum, Int w, Int x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static Int add4(Int sum, Int w, Int x) { return _mm512_dpbusd_epi32(sum, w, x); }
};

}  // namespace

void int_tile8_avx512vnni(const TileArgs& args) { run_tile<Avx512VnniOps, 8>(args); }
void int_tile4_avx512vnni(const TileArgs& args) { run_tile<Avx512VnniOps, 4>(args); }

}  // namespace hone::kernels
#endif
