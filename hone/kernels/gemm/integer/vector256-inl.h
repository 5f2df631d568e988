// SPDX-License-Identifier: Apache-2.0
// Shared by both 256-bit instruction sets. Has internal linkage; only their files include it.
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace hone::kernels {
namespace {

struct Vector256 {
  using Int = __m256i;
  using Float = __m256;
  static constexpr int kRows = 8;
  static constexpr int max_cols(PanelKind) { return 4; }
  // With two units, the accumulators of four columns do not fit into the 16 registers together with
  // the sums, so they are in memory. But each quad of x is read once for both units, which makes
  // products of many rows faster.
  static constexpr int units_for(int, int) { return 2; }

  static Float zero() { return _mm256_setzero_ps(); }
  static Int zero_int() { return _mm256_setzero_si256(); }
  static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Float load(const void* at) { return _mm256_loadu_ps(static_cast<const float*>(at)); }
  static Float load_half(const void* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(at)));
  }
  static void store(float* at, Float v) { _mm256_storeu_ps(at, v); }
  static Int load_int(const void* at) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
  }
  static Int broadcast(const void* at) {
    int quad;
    __builtin_memcpy(&quad, at, 4);
    return _mm256_set1_epi32(quad);
  }
  // Returns the 16 bytes at `at` in every 128-bit part.
  static Int repeat(const void* at) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(static_cast<const __m128i*>(at)));
  }
  // Returns lane `quad` of every 128-bit part in all lanes of the part.
  HONE_INLINE static Int repeat_quad(Int bytes, int quad) {
    if (quad == 0) return _mm256_shuffle_epi32(bytes, 0x00);
    if (quad == 1) return _mm256_shuffle_epi32(bytes, 0x55);
    if (quad == 2) return _mm256_shuffle_epi32(bytes, 0xaa);
    return _mm256_shuffle_epi32(bytes, 0xff);
  }
  static Float broadcast_float(const void* at) {
    float value;
    __builtin_memcpy(&value, at, 4);
    return _mm256_set1_ps(value);
  }
  static Int bytes_to_lanes(const void* at) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(at)));
  }
  static Int signed_bytes_to_lanes(const void* at) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(at)));
  }
  static Int set(int value) { return _mm256_set1_epi32(value); }
  static Int low_nibbles(Int both) { return _mm256_and_si256(both, _mm256_set1_epi8(15)); }
  static Int high_nibbles(Int both) { return low_nibbles(_mm256_srli_epi16(both, 4)); }
  // Adds the upper bits of codes of more than four bits. They are in each byte from bit kFirst on.
  template <int kBits, int kFirst>
  static Int with_upper_bits(Int nibbles, Int upper) {
    if constexpr (kFirst <= 4) {
      upper = _mm256_slli_epi16(upper, 4 - kFirst);
    } else {
      upper = _mm256_srli_epi16(upper, kFirst - 4);
    }
    constexpr int kMask = ((1 << kBits) - 1) << 4;
    return _mm256_or_si256(nibbles, _mm256_and_si256(upper, _mm256_set1_epi8(kMask)));
  }
  static Float to_float(Int v) { return _mm256_cvtepi32_ps(v); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  // In assembly, because GCC would move prefetches to other places; see in_order().
  static void prefetch(const void* at) {
    asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(at)));
  }
  // z · (-Σq), with z in the low 16 bits of a lane and zero above, and -Σq in the low 16 bits.
  static Int correction(Int zero, Int neg_sum) { return _mm256_madd_epi16(zero, neg_sum); }
};

}  // namespace
}  // namespace hone::kernels
