// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace hone::kernels {

// A code's magnitude is exponent and mantissa of an f32, cut to 3 bits of mantissa and moved by
// `bias` exponents; below the smallest normal number steps are even.
struct CodeFormat {
  std::uint32_t bias;     // of the f32 exponent that exponent field 0 stands for
  std::uint32_t largest;  // code
  float smallest_normal;  // 2^(1 + bias - 127)
  float steps_per_unit;   // of subnormals: 8 / smallest_normal
  float step;             // 1 / steps_per_unit
};
inline constexpr int kCutBits = 20;  // of an f32's 23 bits of mantissa
inline constexpr CodeFormat kSignedCode{112, 127, 0x1p-14f, 0x1p17f, 0x1p-17f};
inline constexpr CodeFormat kUnsignedCode{96, 255, 0x1p-30f, 0x1p33f, 0x1p-33f};
// What the block's largest magnitude becomes in both formats.
inline constexpr float kLargestCode = 1.875f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Murmur-like finalizer of a counter; the upper half of the bits is well mixed, which is what
// rounding looks at.
inline constexpr std::uint32_t kMix1 = 0x7feb352du, kMix2 = 0x846ca68bu, kNextElement = 0x9e3779b9u;
constexpr std::uint32_t mix_bits(std::uint32_t x) {
  x = (x ^ (x >> 16)) * kMix1;
  return (x ^ (x >> 15)) * kMix2;
}
constexpr std::uint32_t random_bits(std::uint32_t key, std::uint32_t element) {
  return mix_bits(key + element * kNextElement);
}

}  // namespace hone::kernels
