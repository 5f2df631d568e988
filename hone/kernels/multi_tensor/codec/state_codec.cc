// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/codec/state_codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/codec/state_codec.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/codec/state_codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// Whole vectors of a block or run; the caller pads the rest.
void decode_vectors(const NarrowChunk& from, float* to) {
  if (from.dtype == Dtype::BFloat16) {
    return decode_bf16_vectors(static_cast<const std::uint16_t*>(from.data), from.length, to);
  }
  if (from.dtype == Dtype::Float16) {
    if constexpr (!kConvertsHalf) return decode_chunk_ref(from, to);
    return decode_f16_vectors(static_cast<const std::uint16_t*>(from.data), from.length, to);
  }
  const auto* codes = static_cast<const std::uint8_t*>(from.data);
  from.dtype == Dtype::Int8 ? decode_codes<true>(codes, *from.scales, from.length, to)
                            : decode_codes<false>(codes, *from.scales, from.length, to);
}

void encode_vectors(const float* from, const RoundingKey& rounding, const NarrowChunk& to) {
  if (to.dtype == Dtype::BFloat16) {
    return encode_bf16_vectors(from, to.length, rounding, static_cast<std::uint16_t*>(to.data));
  }
  if (to.dtype == Dtype::Float16) {
    if constexpr (!kConvertsHalf) return encode_chunk_ref(from, rounding, to);
    return encode_f16_vectors(from, to.length, static_cast<std::uint16_t*>(to.data));
  }
  auto* codes = static_cast<std::uint8_t*>(to.data);
  to.dtype == Dtype::Int8 ? encode_block<true>(from, to.length, rounding, codes, to.scales)
                          : encode_block<false>(from, to.length, rounding, codes, to.scales);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstring>

#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {
namespace {

HWY_EXPORT(decode_vectors);
HWY_EXPORT(encode_vectors);

// A multiple of every target's lanes.
constexpr Index kPadTo = 64;
static_assert(kCodeBlock % kPadTo == 0);

bool is_code(Dtype dtype) { return dtype == Dtype::Int8 || dtype == Dtype::UInt8; }

NarrowChunk part_of(const NarrowChunk& chunk, Index first, Index length) {
  return {chunk.dtype, static_cast<std::byte*>(chunk.data) + first * bytes_of(chunk.dtype),
          is_code(chunk.dtype) ? chunk.scales + first / kCodeBlock : nullptr, length};
}

// Calls body(part, offset) for runs that share a scale and have whole vectors. The rest, at most
// one, goes through a padded copy: of codes it is a whole block, because of the scale.
template <class Body>
void for_each_part(const NarrowChunk& chunk, const Body& body) {
  const Index step = is_code(chunk.dtype) ? kCodeBlock : std::max<Index>(chunk.length, 1);
  Index first = 0;
  for (; first + step <= chunk.length && step % kPadTo == 0; first += step) {
    body(part_of(chunk, first, step), first);
  }
  if (!is_code(chunk.dtype) && first == 0) {
    const Index whole = chunk.length / kPadTo * kPadTo;
    if (whole > 0) body(part_of(chunk, 0, whole), 0);
    first = whole;
  }
  if (first < chunk.length) body(part_of(chunk, first, chunk.length - first), first);
}

void decode_by_vectors(const NarrowChunk& from, float* to) {
  for_each_part(from, [to](const NarrowChunk& part, Index first) {
    if (part.length % kPadTo == 0) return HWY_DYNAMIC_DISPATCH(decode_vectors)(part, to + first);
    std::byte narrow[2 * kCodeBlock] = {};
    float wide[kCodeBlock];
    std::memcpy(narrow, part.data, static_cast<std::size_t>(part.length * bytes_of(part.dtype)));
    const Index padded = (part.length + kPadTo - 1) / kPadTo * kPadTo;
    HWY_DYNAMIC_DISPATCH(decode_vectors)({part.dtype, narrow, part.scales, padded}, wide);
    std::copy_n(wide, part.length, to + first);
  });
}

void encode_by_vectors(const float* from, const RoundingKey& rounding, const NarrowChunk& to) {
  for_each_part(to, [&](const NarrowChunk& part, Index first) {
    const RoundingKey own{rounding.key, rounding.first_element + first, rounding.nearest};
    if (part.length % kPadTo == 0) {
      return HWY_DYNAMIC_DISPATCH(encode_vectors)(from + first, own, part);
    }
    std::byte narrow[2 * kCodeBlock];
    float wide[kCodeBlock] = {};
    std::copy_n(from + first, part.length, wide);
    const Index padded = (part.length + kPadTo - 1) / kPadTo * kPadTo;
    HWY_DYNAMIC_DISPATCH(encode_vectors)(wide, own, {part.dtype, narrow, part.scales, padded});
    std::memcpy(part.data, narrow, static_cast<std::size_t>(part.length * bytes_of(part.dtype)));
  });
}

}  // namespace

StateCodec choose_state_codec() {
  if (wants_reference()) return {decode_chunk_ref, encode_chunk_ref};
  return {decode_by_vectors, encode_by_vectors};
}

void decode_chunk(const NarrowChunk& from, float* to) { choose_state_codec().decode(from, to); }
void encode_chunk(const float* from, const RoundingKey& rounding, const NarrowChunk& to) {
  choose_state_codec().encode(from, rounding, to);
}

}  // namespace hone::kernels
#endif
