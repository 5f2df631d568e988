// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (core/philox.h) with successive counters; compiled once per Highway target.
#if defined(HONE_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_PHILOX_INL_H_
#undef HONE_KERNELS_PHILOX_INL_H_
#else
#define HONE_KERNELS_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/core/index.h"
#include "hone/core/philox.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The words of up to kCount successive blocks; words[k] has word k of each block.
template <Index kCount>
struct PhiloxWords {
  HWY_ALIGN std::uint32_t words[4][kCount];
};

// Block i has the counter start + (i, 0, 0, 0). Computes 16 at a time: kCount must be at least
// `count` rounded up to 16.
#if HWY_TARGET == HWY_SCALAR
template <Index kCount>
HWY_INLINE void draw_blocks(std::uint64_t key, const PhiloxBlock& start, Index count,
                            PhiloxWords<kCount>& out) {
  for (Index i = 0; i < count; ++i) {
    const PhiloxBlock drawn =
        philox(key, {start[0] + static_cast<std::uint32_t>(i), start[1], start[2], start[3]});
    for (std::size_t k = 0; k < 4; ++k) out.words[k][i] = drawn[k];
  }
}
#else
using PhiloxTag = hn::CappedTag<std::uint64_t, 8>;

// One round. A lane of 64 bits has one word of a counter in its lower half. The upper half does not
// matter, because MulEven reads the lower one.
template <class V>
HWY_INLINE void mix_lanes(V& c0, V& c1, V& c2, V& c3, V k0, V k1) {
  const hn::Repartition<std::uint32_t, PhiloxTag> d32;
  const auto p0 = hn::MulEven(hn::BitCast(d32, c0), hn::Set(d32, 0xD2511F53u));
  const auto p1 = hn::MulEven(hn::BitCast(d32, c2), hn::Set(d32, 0xCD9E8D57u));
  c0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c1, k0));
  c2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c3, k1));
  c1 = p1;
  c3 = p0;
}

// Writes the lower halves of two vectors.
template <class V>
HWY_INLINE void store_words(V first, V second, std::uint32_t* words) {
  const hn::Repartition<std::uint32_t, PhiloxTag> d;
  hn::StoreU(hn::ConcatEven(d, hn::BitCast(d, second), hn::BitCast(d, first)), d, words);
}

// Alternates between two vectors, because each waits for its own products.
template <Index kCount>
HWY_INLINE void draw_blocks(std::uint64_t key, const PhiloxBlock& start, Index count,
                            PhiloxWords<kCount>& out) {
  const PhiloxTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < count; i += 2 * lanes) {
    auto a0 = hn::Iota(d, start[0] + static_cast<std::uint64_t>(i));
    auto a1 = hn::Set(d, std::uint64_t{start[1]}), a2 = hn::Set(d, std::uint64_t{start[2]});
    auto a3 = hn::Set(d, std::uint64_t{start[3]});
    auto b0 = hn::Add(a0, hn::Set(d, static_cast<std::uint64_t>(lanes))), b1 = a1, b2 = a2, b3 = a3;
    auto k0 = hn::Set(d, key & 0xffffffffu), k1 = hn::Set(d, key >> 32);
    for (int round = 0; round < 10; ++round) {
      mix_lanes(a0, a1, a2, a3, k0, k1);
      mix_lanes(b0, b1, b2, b3, k0, k1);
      k0 = hn::Add(k0, hn::Set(d, std::uint64_t{0x9E3779B9u}));
      k1 = hn::Add(k1, hn::Set(d, std::uint64_t{0xBB67AE85u}));
    }
    store_words(a0, b0, out.words[0] + i);
    store_words(a1, b1, out.words[1] + i);
    store_words(a2, b2, out.words[2] + i);
    store_words(a3, b3, out.words[3] + i);
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
