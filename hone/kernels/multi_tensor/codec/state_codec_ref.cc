// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "hone/core/bf16.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/codec/state_codec_bits.h"

namespace hone::kernels {
namespace {

float decode_magnitude(std::uint32_t code, const CodeFormat& format) {
  if (code < 8) return static_cast<float>(code) * format.step;
  return std::bit_cast<float>((code << kCutBits) + (format.bias << 23));
}

// `random` is 32 bits; half of them set when rounding to nearest.
std::uint32_t encode_magnitude(float value, std::uint32_t random, const CodeFormat& format) {
  if (value < format.smallest_normal) {
    const float part = static_cast<float>(random >> 8) * 0x1p-24f;
    return static_cast<std::uint32_t>(value * format.steps_per_unit + part);
  }
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) + (random >> (32 - kCutBits));
  return std::min(format.largest, (bits >> kCutBits) - (format.bias << 3));
}

std::uint16_t encode_bf16(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return float_to_bf16(value);
  return static_cast<std::uint16_t>((bits + (random >> 16)) >> 16);
}

float largest_of(const float* from, Index length) {
  float largest = 0;
  for (Index i = 0; i < length; ++i) {
    if (std::isnan(from[i])) return from[i];
    largest = std::max(largest, std::abs(from[i]));
  }
  return largest;
}

std::uint32_t random_of(const RoundingKey& rounding, Index i) {
  if (rounding.nearest) return 0x80000000u;
  return random_bits(rounding.key, static_cast<std::uint32_t>(rounding.first_element + i));
}

void encode_block(const float* from, Index first, Index length, const RoundingKey& rounding,
                  const NarrowChunk& to) {
  float largest = largest_of(from + first, length);
  const bool overflown = largest == kInfinity;
  if (overflown && to.dtype == Dtype::Int8) largest = std::numeric_limits<float>::quiet_NaN();
  to.scales[first / kCodeBlock] = largest;
  if (overflown && to.dtype == Dtype::UInt8) {
    std::fill_n(static_cast<std::uint8_t*>(to.data) + first, length, kUnsignedCode.largest);
    return;
  }
  const float up = largest > 0 ? kLargestCode / largest : 0;
  for (Index i = first; i < first + length; ++i) {
    // A subnormal scale has no reciprocal.
    const float size = up < 0x1p127f ? std::abs(from[i]) * up : 0;
    const std::uint32_t random = random_of(rounding, i);
    if (to.dtype == Dtype::UInt8) {
      const std::uint32_t code = encode_magnitude(size, random, kUnsignedCode);
      static_cast<std::uint8_t*>(to.data)[i] =
          static_cast<std::uint8_t>(from[i] > 0 ? std::max(1u, code) : 0u);
    } else {
      const std::uint32_t code = encode_magnitude(size, random, kSignedCode);
      static_cast<std::uint8_t*>(to.data)[i] =
          static_cast<std::uint8_t>(code | (std::signbit(from[i]) ? 0x80u : 0u));
    }
  }
}

}  // namespace

void decode_chunk_ref(const NarrowChunk& from, float* to) {
  for (Index i = 0; i < from.length; ++i) {
    if (from.dtype == Dtype::BFloat16 || from.dtype == Dtype::Float16) {
      const std::uint16_t bits = static_cast<const std::uint16_t*>(from.data)[i];
      to[i] = from.dtype == Dtype::BFloat16 ? bf16_to_float(bits) : f16_to_float(bits);
      continue;
    }
    const std::uint32_t code = static_cast<const std::uint8_t*>(from.data)[i];
    const float scale = from.scales[i / kCodeBlock] * (1 / kLargestCode);
    to[i] = from.dtype == Dtype::UInt8
                ? decode_magnitude(code, kUnsignedCode) * scale
                : std::copysign(decode_magnitude(code & 0x7fu, kSignedCode) * scale,
                                (code & 0x80u) != 0 ? -1.0f : 1.0f);
  }
}

void encode_chunk_ref(const float* from, const RoundingKey& rounding, const NarrowChunk& to) {
  if (to.dtype == Dtype::Int8 || to.dtype == Dtype::UInt8) {
    for (Index first = 0; first < to.length; first += kCodeBlock) {
      encode_block(from, first, std::min(kCodeBlock, to.length - first), rounding, to);
    }
    return;
  }
  auto* bits = static_cast<std::uint16_t*>(to.data);
  for (Index i = 0; i < to.length; ++i) {
    if (to.dtype == Dtype::Float16) {
      bits[i] = float_to_f16(from[i]);
    } else {
      bits[i] =
          rounding.nearest ? float_to_bf16(from[i]) : encode_bf16(from[i], random_of(rounding, i));
    }
  }
}

std::uint32_t mix_rounding_key(std::uint64_t seed, std::uint32_t tensor, Index step, int slot) {
  const auto t = static_cast<std::uint64_t>(step);
  std::uint32_t key = mix_bits(static_cast<std::uint32_t>(seed) ^ 0x2545f491u);
  for (const std::uint64_t part :
       {seed >> 32, std::uint64_t{tensor}, t, t >> 32, static_cast<std::uint64_t>(slot)}) {
    key = mix_bits(key * 0x85ebca6bu + static_cast<std::uint32_t>(part));
  }
  return key;
}

}  // namespace hone::kernels
