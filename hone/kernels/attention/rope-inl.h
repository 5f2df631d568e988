// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see rope.cc.
#if defined(HONE_KERNELS_ATTENTION_ROPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_ROPE_INL_H_
#undef HONE_KERNELS_ATTENTION_ROPE_INL_H_
#else
#define HONE_KERNELS_ATTENTION_ROPE_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/kernels/attention/rope.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Pairs [begin, …) of one head in steps of the tag's lanes; returns where it stopped. One-lane tags
// finish the rest with the same operations.
template <class D>
HWY_INLINE Index turn_half_split(D d, float* x, Index begin, Index pairs, const float* cosine,
                                 const float* sine) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = begin;
  for (; i + lanes <= pairs; i += lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + pairs + i);
    const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + pairs + i);
  }
  return i;
}

template <class D>
HWY_INLINE Index turn_adjacent(D d, float* x, Index begin, Index pairs, const float* cosine,
                               const float* sine) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = begin;
  for (; i + lanes <= pairs; i += lanes) {
    hn::Vec<D> a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
    const auto turned_a = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const auto turned_b = hn::MulAdd(a, s, hn::Mul(b, c));
    hn::StoreInterleaved2(turned_a, turned_b, d, x + 2 * i);
  }
  return i;
}

void rope_rows(const RopeArgs& args) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 4> quarter;
  const hn::CappedTag<float, 1> one;
  const Index pairs = args.dims / 2;
  for (Index row = 0; row < args.rows; ++row) {
    const float* cosine = args.cosine + row * pairs;
    const float* sine = args.sine + row * pairs;
    for (Index head = 0; head < args.heads; ++head) {
      float* x = args.x + row * args.row_stride + head * args.head_dim;
      if (args.pairs == RopePairs::HalfSplit) {
        Index done = turn_half_split(full, x, 0, pairs, cosine, sine);
        done = turn_half_split(quarter, x, done, pairs, cosine, sine);
        turn_half_split(one, x, done, pairs, cosine, sine);
      } else {
        Index done = turn_adjacent(full, x, 0, pairs, cosine, sine);
        done = turn_adjacent(quarter, x, done, pairs, cosine, sine);
        turn_adjacent(one, x, done, pairs, cosine, sine);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
