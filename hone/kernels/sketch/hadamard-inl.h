// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see hadamard.cc. Stages run in ascending order of their
// distance, and each output is one sum or difference, so the bits are the same as in the textbook
// loop.
#if defined(HONE_KERNELS_SKETCH_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_SKETCH_HADAMARD_INL_H_
#undef HONE_KERNELS_SKETCH_HADAMARD_INL_H_
#else
#define HONE_KERNELS_SKETCH_HADAMARD_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/core/index.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most two blocks of 128 bits.
template <class T>
using HadamardTag = hn::CappedTag<T, 32 / sizeof(T)>;
template <class T>
constexpr int kBlockLanes = 16 / sizeof(T);

template <class V>
HWY_INLINE void butterfly(V& a, V& b) {
  const V sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

// -0 in lanes whose number has this bit set, otherwise 0.
template <class T>
HWY_INLINE hn::Vec<HadamardTag<T>> lane_signs(int bit) {
  const HadamardTag<T> d;
  const hn::RebindToUnsigned<HadamardTag<T>> du;
  using Bits = hn::TFromD<decltype(du)>;
  const auto has = hn::And(hn::Iota(du, 0), hn::Set(du, static_cast<Bits>(bit)));
  const auto is_set = hn::RebindMask(d, hn::Ne(has, hn::Zero(du)));
  return hn::IfThenElseZero(is_set, hn::SignBit(d));
}

// Runs the stages within a vector. The signs are lane_signs() of 1, of 2 and of the lanes in 128
// bits.
template <class T, class V>
HWY_INLINE V transform_lanes(V v, [[maybe_unused]] V signs1, [[maybe_unused]] V signs2,
                             [[maybe_unused]] V signs_block) {
#if HWY_TARGET != HWY_SCALAR
  const HadamardTag<T> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  if (lanes > 1) v = hn::Add(hn::Reverse2(d, v), hn::Xor(v, signs1));
  if constexpr (sizeof(T) == 4) {
    if (lanes > 2) v = hn::Add(hn::Shuffle1032(v), hn::Xor(v, signs2));
  }
  if (lanes > kBlockLanes<T>) v = hn::Add(hn::ConcatLowerUpper(d, v, v), hn::Xor(v, signs_block));
#endif
  return v;
}

// Runs kStages stages of x [size]. The first stage combines numbers `distance` apart, which must be
// a multiple of the vector's length. With kLanes, the stages within a vector run before.
template <int kStages, bool kLanes, class T>
HWY_INLINE void sweep(T* HWY_RESTRICT x, Index size, Index distance) {
  const HadamardTag<T> d;
  using V = hn::Vec<HadamardTag<T>>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const V signs1 = lane_signs<T>(1), signs2 = lane_signs<T>(2);
  const V signs_block = lane_signs<T>(kBlockLanes<T>);
  const auto load = [&](const T* from) HWY_ATTR {
    const V v = hn::LoadU(d, from);
    if constexpr (kLanes) return transform_lanes<T>(v, signs1, signs2, signs_block);
    return v;
  };
  for (Index base = 0; base < size; base += distance << kStages) {
    for (T* at = x + base; at < x + base + distance; at += lanes) {
      V v0 = load(at), v1 = v0, v2 = v0, v3 = v0, v4 = v0, v5 = v0, v6 = v0, v7 = v0;
      if constexpr (kStages > 0) {
        v1 = load(at + distance);
        butterfly(v0, v1);
      }
      if constexpr (kStages > 1) {
        v2 = load(at + 2 * distance), v3 = load(at + 3 * distance);
        butterfly(v2, v3);
        butterfly(v0, v2), butterfly(v1, v3);
      }
      if constexpr (kStages > 2) {
        v4 = load(at + 4 * distance), v5 = load(at + 5 * distance);
        v6 = load(at + 6 * distance), v7 = load(at + 7 * distance);
        butterfly(v4, v5), butterfly(v6, v7);
        butterfly(v4, v6), butterfly(v5, v7);
        butterfly(v0, v4), butterfly(v1, v5), butterfly(v2, v6), butterfly(v3, v7);
      }
      hn::StoreU(v0, d, at);
      if constexpr (kStages > 0) hn::StoreU(v1, d, at + distance);
      if constexpr (kStages > 1) {
        hn::StoreU(v2, d, at + 2 * distance);
        hn::StoreU(v3, d, at + 3 * distance);
      }
      if constexpr (kStages > 2) {
        hn::StoreU(v4, d, at + 4 * distance);
        hn::StoreU(v5, d, at + 5 * distance);
        hn::StoreU(v6, d, at + 6 * distance);
        hn::StoreU(v7, d, at + 7 * distance);
      }
    }
  }
}

// Runs all stages of x [size] from `distance` on.
template <class T>
HWY_INLINE void sweep_from(T* x, Index size, Index distance) {
  int stages = 0;
  for (Index at = distance; at < size; at *= 2) ++stages;
  if (stages % 3 == 1) sweep<1, false>(x, size, distance);
  if (stages % 3 == 2) sweep<2, false>(x, size, distance);
  distance <<= stages % 3;
  for (; distance < size; distance *= 8) sweep<3, false>(x, size, distance);
}

// Runs the stages of x [size] with a distance of `width` or more.
template <class T>
HWY_INLINE void transform(T* x, Index size, Index width) {
  constexpr Index kBlock = 16384 / sizeof(T);  // half of the smallest level-1 caches
  const auto lanes = static_cast<Index>(hn::Lanes(HadamardTag<T>()));
  if (width == 1 && size < lanes) {
    for (Index distance = 1; distance < size; distance *= 2) {
      for (Index i = 0; i < size; ++i) {
        if ((i & distance) != 0) continue;
        const T a = x[i], b = x[i + distance];
        x[i] = a + b;
        x[i + distance] = a - b;
      }
    }
    return;
  }
  for (Index at = 0; at < size; at += kBlock) {
    const Index here = size < kBlock ? size : kBlock;
    Index distance = width;
    if (width == 1 && here >= 8 * lanes) {
      sweep<3, true>(x + at, here, lanes);
      distance = 8 * lanes;
    } else if (width == 1) {
      sweep<0, true>(x + at, here, lanes);
      distance = lanes;
    }
    sweep_from(x + at, here, distance);
  }
  if (size > kBlock) sweep_from(x, size, kBlock);
}

void transform_rows_f32(float* x, Index rows, Index stride, Index size, Index width) {
  for (Index row = 0; row < rows; ++row) transform(x + row * stride, size, width);
}
void transform_rows_f64(double* x, Index rows, Index stride, Index size, Index width) {
  for (Index row = 0; row < rows; ++row) transform(x + row * stride, size, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
