// SPDX-License-Identifier: Apache-2.0
// Products of rows in f64. Compiled once per Highway target; see triangular.cc.
#if defined(HONE_KERNELS_LINALG_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_LINALG_DOT_TILE_INL_H_
#undef HONE_KERNELS_LINALG_DOT_TILE_INL_H_
#else
#define HONE_KERNELS_LINALG_DOT_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "hone/kernels/linalg/triangular.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c[i][j] -= a_i · b_j for kRows rows of a and kCols rows of b. Each output has one vector of sums,
// so its bits do not depend on the tile.
template <int kRows, int kCols>
HWY_INLINE void dot_tile(const double* a, Index a_stride, const double* b, Index b_stride,
                         Index depth, double* c, Index c_stride) {
  const hn::CappedTag<double, 8> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  Index k = 0;
  for (; k + lanes <= depth; k += lanes) {
    const V left = hn::LoadU(d, a + k);
    const V right = kRows > 1 ? hn::LoadU(d, a + a_stride + k) : left;
    const auto step = [&](int col, V& first, V& second) HWY_ATTR {
      const V other = hn::LoadU(d, b + col * b_stride + k);
      first = hn::MulAdd(left, other, first);
      if constexpr (kRows > 1) second = hn::MulAdd(right, other, second);
    };
    step(0, a0, b0);
    if constexpr (kCols > 1) step(1, a1, b1);
    if constexpr (kCols > 2) step(2, a2, b2);
    if constexpr (kCols > 3) step(3, a3, b3);
  }
  const auto finish = [&](int row, int col, V sums) HWY_ATTR {
    double sum = hn::GetLane(hn::SumOfLanes(d, sums));
    for (Index rest = k; rest < depth; ++rest)
      sum += a[row * a_stride + rest] * b[col * b_stride + rest];
    c[row * c_stride + col] -= sum;
  };
  const auto finish_column = [&](int col, V first, V second) HWY_ATTR {
    finish(0, col, first);
    if constexpr (kRows > 1) finish(1, col, second);
  };
  finish_column(0, a0, b0);
  if constexpr (kCols > 1) finish_column(1, a1, b1);
  if constexpr (kCols > 2) finish_column(2, a2, b2);
  if constexpr (kCols > 3) finish_column(3, a3, b3);
}

template <int kRows>
HWY_INLINE void subtract_rows(const SubtractProductArgs& args, Index row) {
  const double* a = args.a + row * args.a_stride;
  double* c = args.c + row * args.c_stride;
  const auto tile = [&](auto cols, Index col) HWY_ATTR {
    dot_tile<kRows, decltype(cols)::value>(a, args.a_stride, args.b + col * args.b_stride,
                                           args.b_stride, args.depth, c + col, args.c_stride);
  };
  Index col = 0;
  for (; col + 4 <= args.cols; col += 4) tile(std::integral_constant<int, 4>(), col);
  for (; col < args.cols; ++col) tile(std::integral_constant<int, 1>(), col);
}

// Adds the depth in pieces, so that the rows of b that all rows of a read stay in the level-2
// cache.
void subtract_product_part(const SubtractProductArgs& args) {
  constexpr Index kDepth = 512;
  for (Index begin = 0; begin < args.depth; begin += kDepth) {
    SubtractProductArgs part = args;
    part.a += begin;
    part.b += begin;
    part.depth = std::min(kDepth, args.depth - begin);
    Index row = 0;
    for (; row + 2 <= part.rows; row += 2) subtract_rows<2>(part, row);
    if (row < part.rows) subtract_rows<1>(part, row);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
