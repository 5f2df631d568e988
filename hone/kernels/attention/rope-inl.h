// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see rope.cc.
#if defined(HONE_KERNELS_ATTENTION_ROPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_ROPE_INL_H_
#undef HONE_KERNELS_ATTENTION_ROPE_INL_H_
#else
#define HONE_KERNELS_ATTENTION_ROPE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "hone/kernels/attention/rope.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rotates pairs [begin, …) of one head in steps of the tag's lanes and returns where it stopped. A
// one-lane tag finishes the rest with the same operations.
template <RopePairs kPairs, class D>
HWY_INLINE Index turn_pairs(D d, const RopeArgs& args, const float* x, float* y, Index table,
                            Index begin) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const Index pairs = args.dims / 2;
  const float *cosine = args.cosine + table, *sine = args.sine + table;
  const auto sign = hn::Set(d, args.inverse ? -1.0f : 1.0f);
  Index i = begin;
  for (; i + lanes <= pairs; i += lanes) {
    hn::Vec<D> a, b;
    if constexpr (kPairs == RopePairs::HalfSplit) {
      a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + pairs + i);
    } else {
      hn::LoadInterleaved2(d, x + 2 * i, a, b);
    }
    const auto c = hn::LoadU(d, cosine + i), s = hn::Mul(sign, hn::LoadU(d, sine + i));
    const auto turned_a = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const auto turned_b = hn::MulAdd(a, s, hn::Mul(b, c));
    if constexpr (kPairs == RopePairs::HalfSplit) {
      hn::StoreU(turned_a, d, y + i);
      hn::StoreU(turned_b, d, y + pairs + i);
    } else {
      hn::StoreInterleaved2(turned_a, turned_b, d, y + 2 * i);
    }
  }
  return i;
}

template <RopePairs kPairs>
HWY_INLINE void turn_row(const RopeArgs& args, Index row) {
  const Index table = row % args.positions * (args.dims / 2);
  for (Index head = 0; head < args.heads; ++head) {
    const float* x = args.x + row * args.x_stride + head * args.head_dim;
    float* y = args.y + row * args.y_stride + head * args.head_dim;
    Index done = turn_pairs<kPairs>(hn::ScalableTag<float>(), args, x, y, table, 0);
    done = turn_pairs<kPairs>(hn::CappedTag<float, 4>(), args, x, y, table, done);
    turn_pairs<kPairs>(hn::CappedTag<float, 1>(), args, x, y, table, done);
    if (x != y) std::copy(x + args.dims, x + args.head_dim, y + args.dims);
  }
}

void rope_rows(const RopeArgs& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    args.pairs == RopePairs::HalfSplit ? turn_row<RopePairs::HalfSplit>(args, row)
                                       : turn_row<RopePairs::Adjacent>(args, row);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
