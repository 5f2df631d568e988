// SPDX-License-Identifier: Apache-2.0
// Vector code of state_codec.h, compiled once per Highway target.
#if defined(HONE_STATE_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_STATE_CODEC_INL_H_
#undef HONE_STATE_CODEC_INL_H_
#else
#define HONE_STATE_CODEC_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/codec/state_codec_bits.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using CodecFloats = hn::ScalableTag<float>;
using CodecWords = hn::RebindToUnsigned<CodecFloats>;
using CodecBytes = hn::Rebind<std::uint8_t, CodecFloats>;
using CodecHalves = hn::Rebind<std::uint16_t, CodecFloats>;
using CodecVec = hn::Vec<CodecFloats>;
using CodecBits = hn::Vec<CodecWords>;

// Returns the counters of the first vector's elements; counter_stride() is the step to the next
// vector.
HWY_INLINE CodecBits first_counters(const RoundingKey& rounding) {
  const CodecWords w;
  const auto first = static_cast<std::uint32_t>(rounding.first_element);
  return hn::Add(hn::Mul(hn::Iota(w, 0), hn::Set(w, kNextElement)),
                 hn::Set(w, rounding.key + first * kNextElement));
}
HWY_INLINE CodecBits counter_stride() {
  const CodecWords w;
  return hn::Set(w, static_cast<std::uint32_t>(hn::Lanes(w)) * kNextElement);
}
// Returns 32 random bits for each element, or the middle value when rounding to nearest.
HWY_INLINE CodecBits random_vector(CodecBits counters, bool nearest) {
  const CodecWords w;
  if (nearest) return hn::Set(w, 0x80000000u);
  const CodecBits x = hn::Mul(hn::Xor(counters, hn::ShiftRight<16>(counters)), hn::Set(w, kMix1));
  return hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(w, kMix2));
}

// Subnormal codes are rare, so both directions look for them first.
HWY_INLINE CodecVec decode_magnitude(CodecBits code, const CodeFormat& format) {
  const CodecFloats d;
  const CodecWords w;
  const auto normal =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<kCutBits>(code), hn::Set(w, format.bias << 23)));
  const auto is_even = hn::Lt(code, hn::Set(w, 8u));
  if (HWY_LIKELY(hn::AllFalse(w, is_even))) return normal;
  const auto even = hn::Mul(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<CodecFloats>(), code)),
                            hn::Set(d, format.step));
  return hn::IfThenElse(hn::RebindMask(d, is_even), even, normal);
}

HWY_INLINE CodecBits encode_magnitude(CodecVec value, CodecBits random, const CodeFormat& format) {
  const CodecFloats d;
  const CodecWords w;
  const hn::RebindToSigned<CodecFloats> i;
  const auto bits = hn::Add(hn::BitCast(w, value), hn::ShiftRight<32 - kCutBits>(random));
  const auto normal = hn::Min(hn::Set(w, format.largest), hn::Sub(hn::ShiftRight<kCutBits>(bits),
                                                                  hn::Set(w, format.bias << 3)));
  const auto is_even = hn::Lt(value, hn::Set(d, format.smallest_normal));
  if (HWY_LIKELY(hn::AllFalse(d, is_even))) return normal;
  const auto part =
      hn::Mul(hn::ConvertTo(d, hn::BitCast(i, hn::ShiftRight<8>(random))), hn::Set(d, 0x1p-24f));
  // Large values must not overflow the conversion.
  const auto small = hn::IfThenElseZero(is_even, value);
  const auto even = hn::BitCast(
      w, hn::ConvertTo(i, hn::Add(hn::Mul(small, hn::Set(d, format.steps_per_unit)), part)));
  return hn::IfThenElse(hn::RebindMask(w, is_even), even, normal);
}

// Returns the factor of codes: the block's scale over the largest code.
HWY_INLINE CodecVec decode_factor(float scale) {
  return hn::Set(CodecFloats(), scale * (1 / kLargestCode));
}
// Codes to numbers.
template <bool kSigned>
HWY_INLINE CodecVec decode_vector(const std::uint8_t* codes, CodecVec factor) {
  const CodecFloats d;
  const CodecWords w;
  const CodecBits code = hn::PromoteTo(w, hn::LoadU(CodecBytes(), codes));
  if constexpr (!kSigned) return hn::Mul(decode_magnitude(code, kUnsignedCode), factor);
  const auto size = decode_magnitude(hn::And(code, hn::Set(w, 0x7fu)), kSignedCode);
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(w, 0x80u)));
  return hn::Or(hn::Mul(size, factor), hn::BitCast(d, sign));
}

template <bool kSigned>
HWY_INLINE void decode_codes(const std::uint8_t* codes, float scale, Index length, float* to) {
  const CodecFloats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto factor = decode_factor(scale);
  for (Index i = 0; i < length; i += lanes) {
    hn::StoreU(decode_vector<kSigned>(codes + i, factor), d, to + i);
  }
}

// Infinite or NaN if an element is: as integers, their bits are the largest.
HWY_INLINE CodecBits larger_magnitude(CodecBits largest, CodecVec value) {
  const CodecWords w;
  return hn::Max(largest, hn::And(hn::BitCast(w, value), hn::Set(w, 0x7fffffffu)));
}

// The scale to store for a block, and the factor `up` that turns its numbers into codes.
struct BlockScale {
  float scale = 0, up = 0;
};
template <bool kSigned>
HWY_INLINE BlockScale block_scale(CodecBits largest) {
  const std::uint32_t bits = hn::GetLane(hn::MaxOfLanes(CodecWords(), largest));
  float scale = std::bit_cast<float>(std::min(bits, 0x7fc00000u));
  if (kSigned && scale == kInfinity) scale = std::bit_cast<float>(0x7fc00000u);
  const float up = scale > 0 ? kLargestCode / scale : 0;
  return {scale, up < 0x1p127f ? up : 0};
}

template <bool kSigned>
HWY_INLINE void encode_vector(CodecVec x, CodecVec factor, CodecBits random, std::uint8_t* codes) {
  const CodecFloats d;
  const CodecWords w;
  const auto size = hn::Mul(hn::Abs(x), factor);
  CodecBits code;
  if constexpr (kSigned) {
    const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(w, x)), hn::Set(w, 0x80u));
    code = hn::Or(encode_magnitude(size, random, kSignedCode), sign);
  } else {
    const auto kept = hn::Max(encode_magnitude(size, random, kUnsignedCode), hn::Set(w, 1u));
    code = hn::IfThenElseZero(hn::RebindMask(w, hn::Gt(x, hn::Zero(d))), kept);
  }
  hn::StoreU(hn::TruncateTo(CodecBytes(), code), CodecBytes(), codes);
}

// Writes the codes of an unsigned block with an infinite number.
HWY_INLINE void encode_overflown(Index length, std::uint8_t* codes) {
  std::fill_n(codes, length, static_cast<std::uint8_t>(kUnsignedCode.largest));
}

template <bool kSigned>
HWY_INLINE void encode_block(const float* from, Index length, const RoundingKey& rounding,
                             std::uint8_t* codes, float* scale) {
  const CodecFloats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto largest = hn::Zero(CodecWords());
  for (Index i = 0; i < length; i += lanes) {
    largest = larger_magnitude(largest, hn::LoadU(d, from + i));
  }
  const BlockScale block = block_scale<kSigned>(largest);
  *scale = block.scale;
  if (!kSigned && block.scale == kInfinity) return encode_overflown(length, codes);
  const auto factor = hn::Set(d, block.up);
  const bool nearest = rounding.nearest;  // codes are bytes, which may alias anything
  const CodecBits stride = counter_stride();
  CodecBits counters = first_counters(rounding);
  for (Index i = 0; i < length; i += lanes) {
    encode_vector<kSigned>(hn::LoadU(d, from + i), factor, random_vector(counters, nearest),
                           codes + i);
    counters = hn::Add(counters, stride);
  }
}

HWY_INLINE void encode_bf16_vector(CodecVec x, CodecBits counters, bool nearest,
                                   std::uint16_t* to) {
  const CodecWords w;
  const auto exponent = hn::Set(w, 0x7f800000u);
  const CodecBits bits = hn::BitCast(w, x);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(w, 1u));
  const CodecBits added = nearest ? hn::Add(hn::Set(w, 0x7fffu), even)
                                  : hn::ShiftRight<16>(random_vector(counters, /*nearest=*/false));
  const CodecBits rounded = hn::ShiftRight<16>(hn::Add(bits, added));
  // Inf stays inf; NaN keeps a bit of its mantissa.
  const auto special = hn::Eq(hn::And(bits, exponent), exponent);
  const auto is_nan = hn::Gt(hn::And(bits, hn::Set(w, 0x7fffffffu)), exponent);
  const CodecBits quiet = hn::IfThenElseZero(is_nan, hn::Set(w, 0x40u));
  const CodecBits kept = hn::Or(hn::ShiftRight<16>(bits), quiet);
  hn::StoreU(hn::TruncateTo(CodecHalves(), hn::IfThenElse(special, kept, rounded)), CodecHalves(),
             to);
}

HWY_INLINE void encode_bf16_vectors(const float* from, Index length, const RoundingKey& rounding,
                                    std::uint16_t* to) {
  const CodecFloats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const CodecBits stride = counter_stride();
  CodecBits counters = first_counters(rounding);
  for (Index i = 0; i < length; i += lanes) {
    encode_bf16_vector(hn::LoadU(d, from + i), counters, rounding.nearest, to + i);
    counters = hn::Add(counters, stride);
  }
}

HWY_INLINE CodecVec decode_bf16_vector(const std::uint16_t* from) {
  const CodecWords w;
  const CodecBits bits = hn::PromoteTo(w, hn::LoadU(CodecHalves(), from));
  return hn::BitCast(CodecFloats(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE void decode_bf16_vectors(const std::uint16_t* from, Index length, float* to) {
  const CodecFloats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < length; i += lanes) {
    hn::StoreU(decode_bf16_vector(from + i), d, to + i);
  }
}

// Without an instruction, Highway's conversions support neither inf nor subnormals.
constexpr bool kConvertsHalf = HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 &&
                               HWY_TARGET != HWY_SSSE3 && HWY_TARGET != HWY_SSE4;

HWY_INLINE void decode_f16_vectors(const std::uint16_t* from, Index length, float* to) {
  const CodecFloats d;
  const hn::Rebind<hwy::float16_t, CodecFloats> halves;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto* values = reinterpret_cast<const hwy::float16_t*>(from);
  for (Index i = 0; i < length; i += lanes) {
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(halves, values + i)), d, to + i);
  }
}

HWY_INLINE void encode_f16_vectors(const float* from, Index length, std::uint16_t* to) {
  const CodecFloats d;
  const hn::Rebind<hwy::float16_t, CodecFloats> halves;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto* values = reinterpret_cast<hwy::float16_t*>(to);
  for (Index i = 0; i < length; i += lanes) {
    hn::StoreU(hn::DemoteTo(halves, hn::LoadU(d, from + i)), halves, values + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
