// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see kv_write.cc.
#if defined(HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_
#undef HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_
#else
#define HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hone/core/bf16.h"
#include "hone/kernels/attention/kv_layout.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway rounds in hardware only on AVX2 and later; its emulation truncates.
HWY_INLINE void narrow(const float* from, Index count, std::uint16_t* to) {
  Index i = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, from + i)), half,
               reinterpret_cast<hwy::float16_t*>(to + i));
  }
#endif
  for (; i < count; ++i) to[i] = float_to_f16(from[i]);
}
HWY_INLINE void narrow(const float* from, Index count, float* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

// round(x / scale) for a tag's lanes; scaled values lie within ±127.
template <class D>
HWY_INLINE Index quantize_lanes(D d, const float* from, Index begin, Index count, float inverse,
                                std::int8_t* to) {
  const hn::Rebind<std::int8_t, D> bytes;
  const hn::Rebind<std::int16_t, D> shorts;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = begin;
  for (; i + lanes <= count; i += lanes) {
    const auto whole = hn::NearestInt(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, inverse)));
    hn::StoreU(hn::DemoteTo(bytes, hn::DemoteTo(shorts, whole)), bytes, to + i);
  }
  return i;
}

// Returns the bits of the largest magnitude. The bits of NaN and infinity exceed all numbers.
HWY_INLINE std::int32_t largest_magnitude_bits(const float* x, Index count) {
  constexpr std::int32_t kMagnitude = 0x7fffffff;
  const hn::ScalableTag<std::int32_t> d;
  const hn::RebindToFloat<decltype(d)> floats;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto most = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::BitCast(d, hn::LoadU(floats, x + i));
    most = hn::Max(most, hn::And(bits, hn::Set(d, kMagnitude)));
  }
  std::int32_t largest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    largest = std::max(largest, bits & kMagnitude);
  }
  return largest;
}

// Quantizes one head of one token and returns the bits of its scale.
HWY_INLINE std::uint16_t quantize_head(const float* from, Index count, std::int8_t* to) {
  constexpr std::uint16_t kNan = 0x7e00;
  const std::int32_t bits = largest_magnitude_bits(from, count);
  float most;
  std::memcpy(&most, &bits, sizeof(most));
  if (!(most <= 127 * 65504.0f)) {
    std::memset(to, 0, static_cast<std::size_t>(count));
    return kNan;
  }
  std::uint16_t scale = float_to_f16(most / 127);
  if (f16_to_float(scale) < most / 127) ++scale;
  const float inverse = scale == 0 ? 0.0f : 1 / f16_to_float(scale);
  Index done = quantize_lanes(hn::ScalableTag<float>(), from, 0, count, inverse, to);
  done = quantize_lanes(hn::CappedTag<float, 4>(), from, done, count, inverse, to);
  quantize_lanes(hn::CappedTag<float, 1>(), from, done, count, inverse, to);
  return scale;
}

// Writes one head of one token of an int8 cache.
HWY_INLINE void write_quantized(const KvView& cache, const float* k, const float* v, Index position,
                                Index head) {
  const Index dim = cache.layout.head_dim;
  const Index block = position / kKvBlockTokens, token = position % kKvBlockTokens;
  std::int8_t quantized[512];  // head_dim <= 512
  cache.key_scales(block, head)[token] = quantize_head(k, dim, quantized);
  auto* cell =
      reinterpret_cast<std::int8_t*>(cache.keys(block, head)) + cache.layout.key_element(token, 0);
  for (Index i = 0; i < dim; ++i) cell[i * kKvKeyLanes] = quantized[i];
  auto* values = reinterpret_cast<std::int8_t*>(cache.values(block, head));
  cache.value_scales(block, head)[token] = quantize_head(v, dim, values + token * dim);
}

// Writes one head of one token. `key` and `value` are the planes of its block.
template <class Element>
HWY_INLINE void write_head(const float* k, const float* v, Index token, const KvLayout& layout,
                           std::byte* key, std::byte* value) {
  Element narrowed[512];  // head_dim <= 512
  narrow(k, layout.head_dim, narrowed);
  auto* keys = reinterpret_cast<Element*>(key);
  Element* cell = keys + layout.key_element(token, 0);
  for (Index i = 0; i < layout.head_dim; ++i) cell[i * kKvKeyLanes] = narrowed[i];
  narrow(v, layout.head_dim, reinterpret_cast<Element*>(value) + token * layout.head_dim);
}

void write_kv_rows(const KvWriteArgs& args) {
  const KvLayout& layout = args.cache.layout;
  for (Index row = 0; row < args.rows; ++row) {
    const Index position = args.first_position + row;
    const Index block = position / kKvBlockTokens, token = position % kKvBlockTokens;
    for (Index head = args.head_begin; head < args.head_end; ++head) {
      const Index at = row * args.stride + head * layout.head_dim;
      if (layout.dtype == Dtype::Int8) {
        write_quantized(args.cache, args.k + at, args.v + at, position, head);
        continue;
      }
      std::byte* key = args.cache.keys(block, head);
      std::byte* value = args.cache.values(block, head);
      if (layout.dtype == Dtype::Float16) {
        write_head<std::uint16_t>(args.k + at, args.v + at, token, layout, key, value);
      } else {
        write_head<float>(args.k + at, args.v + at, token, layout, key, value);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
