// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "hone/kernels/gemm/integer/int_tile-inl.h"
#include "hone/kernels/gemm/integer/int_tile.h"
#include "hone/kernels/gemm/integer/vector512-inl.h"

namespace hone::kernels {
namespace {

// vpdpbusd adds four unsigned x signed byte products to an int32 lane without saturating, so the
// codes are used as they lie and the zero point is subtracted through Σq.
struct Avx512VnniOps : Vector512 {
  using Weight8 = Int;

  template <int kBits>
  static Int zeros_from_bytes(const void* at) {
    return bytes_to_lanes(at);
  }
  template <int kBits>
  static Int symmetric_correction(const std::byte* products) {
    return broadcast(products);
  }
  template <int kBits>
  static constexpr bool sums_are_int32() {
    return true;
  }
  static Weight8 weight8(Int codes) { return codes; }
  static Int add8(Int sum, Weight8 w, Int x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static Int add4(Int sum, Int w, Int x) { return _mm512_dpbusd_epi32(sum, w, x); }
};

}  // namespace

void int_tile8_avx512vnni(const TileArgs& args) { run_tile<Avx512VnniOps, 8>(args); }
void int_tile4_avx512vnni(const TileArgs& args) { run_tile<Avx512VnniOps, 4>(args); }

}  // namespace hone::kernels
#endif
