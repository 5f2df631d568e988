// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace hone::kernels {

// A code's magnitude is the exponent and mantissa of an f32, with the mantissa cut to 3 bits and
// the exponent reduced by `bias`. Steps are even below the smallest normal number.
struct CodeFormat {
  std::uint32_t bias;     // f32 exponent that exponent field 0 represents
  std::uint32_t largest;  // largest code
  float smallest_normal;  // 2^(1 + bias - 127)
  float steps_per_unit;   // of subnormals: 8 / smallest_normal
  float step;             // 1 / steps_per_unit
};
inline constexpr int kCutBits = 20;  // bits cut off an f32's 23 bits of mantissa
inline constexpr CodeFormat kSignedCode{112, 127, 0x1p-14f, 0x1p17f, 0x1p-17f};
inline constexpr CodeFormat kUnsignedCode{96, 255, 0x1p-30f, 0x1p33f, 0x1p-33f};
// The value of the largest code in both formats.
inline constexpr float kLargestCode = 1.875f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Murmur-like finalizer of a counter. The upper half of the bits, which rounding uses, is well
// mixed.
inline constexpr std::uint32_t kMix1 = 0x7feb352du, kMix2 = 0x846ca68bu, kNextElement = 0x9e3779b9u;
constexpr std::uint32_t mix_bits(std::uint32_t x) {
  x = (x ^ (x >> 16)) * kMix1;
  return (x ^ (x >> 15)) * kMix2;
}
constexpr std::uint32_t random_bits(std::uint32_t key, std::uint32_t element) {
  return mix_bits(key + element * kNextElement);
}

}  // namespace hone::kernels
