// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see kv_write.cc.
#if defined(HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_
#undef HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_
#else
#define HONE_KERNELS_ATTENTION_KV_WRITE_INL_H_
#endif

#include <hwy/highway.h>

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
