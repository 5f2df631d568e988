// SPDX-License-Identifier: Apache-2.0
// Products of a matrix and a few vectors, which read the matrix once: they are bandwidth-bound.
// Compiled once per Highway target; see product.cc.
#if defined(HONE_KERNELS_PRODUCT_VECTOR_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_PRODUCT_VECTOR_PRODUCT_INL_H_
#undef HONE_KERNELS_PRODUCT_VECTOR_PRODUCT_INL_H_
#else
#define HONE_KERNELS_PRODUCT_VECTOR_PRODUCT_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "hone/kernels/product/product_part.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using VectorTag = hn::CappedTag<float, 16>;

// out[row * out_stride] = start + row of a · x. Four rows are four streams of memory. Each row has
// two sums of vectors, whatever the number of rows, so its bits do not depend on the other rows.
template <int kRows>
HWY_INLINE void dot_rows(const float* a, Index a_stride, const float* x, Index depth, float start,
                         float* out, Index out_stride) {
  const VectorTag d;
  using V = hn::Vec<VectorTag>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  Index k = 0;
  for (; k + 2 * lanes <= depth; k += 2 * lanes) {
    const V left_x = hn::LoadU(d, x + k), right_x = hn::LoadU(d, x + k + lanes);
    const auto step = [&](int row, V& left, V& right) HWY_ATTR {
      const float* from = a + row * a_stride + k;
      left = hn::MulAdd(hn::LoadU(d, from), left_x, left);
      right = hn::MulAdd(hn::LoadU(d, from + lanes), right_x, right);
    };
    step(0, a0, b0);
    if constexpr (kRows > 1) step(1, a1, b1), step(2, a2, b2), step(3, a3, b3);
  }
  const auto finish = [&](int row, V left, V right) HWY_ATTR {
    const float* from = a + row * a_stride;
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(left, right)));
    for (Index rest = k; rest < depth; ++rest) sum += from[rest] * x[rest];
    out[row * out_stride] = start + sum;
  };
  finish(0, a0, b0);
  if constexpr (kRows > 1) finish(1, a1, b1), finish(2, a2, b2), finish(3, a3, b3);
}

// Computes kRows rows, from `row` on, with all columns of b.
template <int kRows>
HWY_INLINE void dot_columns(const ProductArgs& args, Index row) {
  const auto& [a, b, bias, out] = args;
  for (Index col = 0; col < out.cols; ++col) {
    dot_rows<kRows>(&a(row, 0), a.row_stride, &b(0, col), a.cols,
                    bias != nullptr ? bias[col] : 0.0F, &out(row, col), out.row_stride);
  }
}

// Computes rows of the product with few columns of b.
void multiply_columns_part(const ProductArgs& args, Index begin, Index end) {
  constexpr int kAtOnce = 4;
  Index row = begin;
  for (; row + kAtOnce <= end; row += kAtOnce) dot_columns<kAtOnce>(args, row);
  for (; row < end; ++row) dot_columns<1>(args, row);
}

// out [cols] += a [kDepth] · b [kDepth, cols]. The processor prefetches along rows, but not from
// row to row. So this prefetches the rows below, from `ahead` on.
template <int kDepth>
HWY_INLINE void add_rows(const float* a, Index a_stride, const Strided<const float>& b,
                         const float* ahead, float* out) {
  const VectorTag d;
  using V = hn::Vec<VectorTag>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index col = 0;
  for (; col + lanes <= b.cols; col += lanes) {
    V sum = hn::LoadU(d, out + col);
    for (int k = 0; k < kDepth; ++k) {
      if (ahead != nullptr) hwy::Prefetch(ahead + k * b.row_stride + col);
      sum = hn::MulAdd(hn::Set(d, a[k * a_stride]), hn::LoadU(d, b.data + k * b.row_stride + col),
                       sum);
    }
    hn::StoreU(sum, d, out + col);
  }
  for (; col < b.cols; ++col) {
    for (int k = 0; k < kDepth; ++k) {
      const auto one = hn::CappedTag<float, 1>();
      hn::StoreU(hn::MulAdd(hn::Set(one, a[k * a_stride]), hn::LoadU(one, &b(k, col)),
                            hn::LoadU(one, out + col)),
                 one, out + col);
    }
  }
}

// Adds depth k to k + kDepth - 1 to the sums in columns [begin, end) of all rows.
template <int kDepth>
HWY_INLINE void add_depth(const ProductArgs& args, Index begin, Index end, Index k) {
  const auto& [a, b, bias, out] = args;
  const Strided<const float> part{&b(k, begin), kDepth, end - begin, b.row_stride, 1};
  const float* next = k + 2 * kDepth <= a.cols ? part.data + kDepth * b.row_stride : nullptr;
  for (Index row = 0; row < out.rows; ++row) {
    add_rows<kDepth>(&a(row, k), a.col_stride, part, row == 0 ? next : nullptr, &out(row, begin));
  }
}

// Computes columns of the product with few rows of a. The sums are in `out`, in the level-1 cache.
void multiply_rows_part(const ProductArgs& args, Index begin, Index end) {
  for (Index row = 0; row < args.out.rows; ++row) {
    if (args.bias != nullptr) {
      std::copy(args.bias + begin, args.bias + end, &args.out(row, begin));
    } else {
      std::fill_n(&args.out(row, begin), end - begin, 0.0F);
    }
  }
  constexpr int kAtOnce = 4;
  Index k = 0;
  for (; k + kAtOnce <= args.a.cols; k += kAtOnce) add_depth<kAtOnce>(args, begin, end, k);
  for (; k < args.a.cols; ++k) add_depth<1>(args, begin, end, k);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
