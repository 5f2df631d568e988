// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see product.cc.
#if defined(HONE_KERNELS_PRODUCT_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_PRODUCT_PRODUCT_INL_H_
#undef HONE_KERNELS_PRODUCT_PRODUCT_INL_H_
#else
#define HONE_KERNELS_PRODUCT_PRODUCT_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "hone/kernels/product/product_part.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr Index kMostLanes = 16;
constexpr Index kMostTileRows = 6;
using WideTag = hn::CappedTag<float, static_cast<std::size_t>(kMostLanes)>;
using NarrowTag = hn::CappedTag<float, static_cast<std::size_t>(kMostLanes / 2)>;

// out [rows, two vectors] = start + a [rows, depth] · b [depth, two vectors]; a null start is zero.
struct ProductTile {
  const float* a = nullptr;
  Index a_row_stride = 0, a_col_stride = 0;
  const float* b = nullptr;
  Index b_stride = 0, depth = 0;
  const float* start = nullptr;
  Index start_stride = 0;
  float* out = nullptr;
  Index out_stride = 0;
  const float* ahead = nullptr;  // a panel like b, from which each row's cache line is prefetched
};

// Twelve sums and three operands fit the 16 registers of AVX2. They are separate variables, because
// sizeless vectors cannot form arrays. Each step is called for them one by one, because GCC leaves
// sums in memory if one lambda passes them to another.
template <int kRows, class D>
HWY_INLINE void multiply_tile(const ProductTile& tile) {
  const D d;
  using V = hn::Vec<D>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
  V b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
  const auto begin = [&](int row, V& left, V& right) HWY_ATTR {
    const float* start = tile.start + row * tile.start_stride;
    left = hn::LoadU(d, start);
    right = hn::LoadU(d, start + lanes);
  };
  if (tile.start != nullptr) {
    begin(0, a0, b0);
    if constexpr (kRows > 1) begin(1, a1, b1);
    if constexpr (kRows > 2) begin(2, a2, b2);
    if constexpr (kRows > 3) begin(3, a3, b3);
    if constexpr (kRows > 4) begin(4, a4, b4);
    if constexpr (kRows > 5) begin(5, a5, b5);
  }
  const float *a = tile.a, *b = tile.b, *ahead = tile.ahead;
  for (Index k = 0; k < tile.depth; ++k) {
    hwy::Prefetch(ahead);
    const V left_b = hn::LoadU(d, b), right_b = hn::LoadU(d, b + lanes);
    const auto step = [&](int row, V& left, V& right) HWY_ATTR {
      const V factor = hn::Set(d, a[row * tile.a_row_stride]);
      left = hn::MulAdd(factor, left_b, left);
      right = hn::MulAdd(factor, right_b, right);
    };
    step(0, a0, b0);
    if constexpr (kRows > 1) step(1, a1, b1);
    if constexpr (kRows > 2) step(2, a2, b2);
    if constexpr (kRows > 3) step(3, a3, b3);
    if constexpr (kRows > 4) step(4, a4, b4);
    if constexpr (kRows > 5) step(5, a5, b5);
    a += tile.a_col_stride, b += tile.b_stride, ahead += tile.b_stride;
  }
  const auto finish = [&](int row, V left, V right) HWY_ATTR {
    float* out = tile.out + row * tile.out_stride;
    hn::StoreU(left, d, out);
    hn::StoreU(right, d, out + lanes);
  };
  finish(0, a0, b0);
  if constexpr (kRows > 1) finish(1, a1, b1);
  if constexpr (kRows > 2) finish(2, a2, b2);
  if constexpr (kRows > 3) finish(3, a3, b3);
  if constexpr (kRows > 4) finish(4, a4, b4);
  if constexpr (kRows > 5) finish(5, a5, b5);
}

template <class D>
HWY_INLINE void multiply_tile(const ProductTile& tile, Index rows) {
  switch (rows) {
    case 1:
      return multiply_tile<1, D>(tile);
    case 2:
      return multiply_tile<2, D>(tile);
    case 3:
      return multiply_tile<3, D>(tile);
    case 4:
      return multiply_tile<4, D>(tile);
    case 5:
      return multiply_tile<5, D>(tile);
    default:
      return multiply_tile<6, D>(tile);
  }
}

// Like multiply_tile() for a panel of fewer columns. Uses temporary memory with space for all
// columns.
template <class D>
HWY_INLINE void multiply_narrow_tile(ProductTile tile, Index rows, Index cols) {
  HWY_ALIGN float sums[kMostTileRows * 2 * kMostLanes] = {};
  constexpr Index kStride = 2 * kMostLanes;
  if (tile.start != nullptr) {
    for (Index row = 0; row < rows; ++row) {
      std::copy_n(tile.start + row * tile.start_stride, cols, sums + row * kStride);
    }
  }
  float* out = tile.out;
  const Index out_stride = tile.out_stride;
  tile.start = tile.out = sums;
  tile.start_stride = tile.out_stride = kStride;
  multiply_tile<D>(tile, rows);
  for (Index row = 0; row < rows; ++row) {
    std::copy_n(sums + row * kStride, cols, out + row * out_stride);
  }
}

// Interleaves four contiguous columns into four columns of a panel.
HWY_INLINE void interleave_columns(const float* const (&from)[4], Index depth, float* to,
                                   Index to_stride) {
  const WideTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  HWY_ALIGN float turned[4 * kMostLanes];
  Index k = 0;
  for (; k + lanes <= depth; k += lanes) {
    hn::StoreInterleaved4(hn::LoadU(d, from[0] + k), hn::LoadU(d, from[1] + k),
                          hn::LoadU(d, from[2] + k), hn::LoadU(d, from[3] + k), d, turned);
    for (Index i = 0; i < lanes; ++i) std::copy_n(turned + 4 * i, 4, to + (k + i) * to_stride);
  }
  for (; k < depth; ++k) {
    for (Index j = 0; j < 4; ++j) to[k * to_stride + j] = from[j][k];
  }
}

// panel [depth, width] = b, where columns past the last repeat some column or are 0.
HWY_INLINE void pack_panel(const Strided<const float>& b, Index width, float* panel) {
  if (b.col_stride == 1) {
    for (Index k = 0; k < b.rows; ++k) {
      float* end = std::copy_n(&b(k, 0), b.cols, panel + k * width);
      std::fill_n(end, width - b.cols, 0.0F);
    }
    return;
  }
  for (Index j = 0; j < width; j += 4) {
    const auto column = [&](Index i) { return &b(0, std::min(j + i, b.cols - 1)); };
    interleave_columns({column(0), column(1), column(2), column(3)}, b.rows, panel + j, width);
  }
}

template <class D>
HWY_INLINE void multiply_part_by(const ProductArgs& args, const ProductPart& part) {
  const Index width = 2 * static_cast<Index>(hn::Lanes(D()));
  HWY_ALIGN float panel[kProductDepth * 2 * kMostLanes];
  const auto& [a, b, bias, out] = args;
  Index k = 0;
  do {
    const Index depth = std::min(kProductDepth, a.cols - k);
    for (Index col = part.cols_begin; col < part.cols_end; col += width) {
      const Index cols = std::min(width, part.cols_end - col);
      ProductTile tile{.a_row_stride = a.row_stride,
                       .a_col_stride = a.col_stride,
                       .b = panel,
                       .b_stride = width,
                       .depth = depth,
                       .out_stride = out.row_stride};
      if (b.col_stride == 1 && cols == width) {
        tile.b = &b(k, col);
        tile.b_stride = b.row_stride;
      } else if (depth > 0) {
        pack_panel({&b(k, col), depth, cols, b.row_stride, b.col_stride}, width, panel);
      }
      const bool has_next = tile.b != panel && col + 2 * width <= part.cols_end;
      const float* next = has_next ? tile.b + width : tile.b;
      const Index rows = part.rows_end - part.rows_begin;
      const Index groups = ceil_div(rows, kMostTileRows);  // group sizes differ by 1 at most
      for (Index group = 0; group < groups; ++group) {
        const Index row = part.rows_begin + group * rows / groups;
        const Index count = part.rows_begin + (group + 1) * rows / groups - row;
        tile.a = &a(row, k);
        tile.out = &out(row, col);
        tile.start = k > 0 ? tile.out : bias != nullptr ? bias + col : nullptr;
        tile.start_stride = k > 0 ? out.row_stride : 0;
        tile.ahead = next + group % 2 * width / 2;  // a panel is up to two cache lines wide
        if (cols == width) {
          multiply_tile<D>(tile, count);
        } else {
          multiply_narrow_tile<D>(tile, count, cols);
        }
      }
    }
    k += depth;
  } while (k < a.cols);
}

void multiply_part(const ProductArgs& args, const ProductPart& part) {
  const bool is_narrow =
      part.cols_end - part.cols_begin <= static_cast<Index>(hn::Lanes(WideTag()));
  if (is_narrow) {
    multiply_part_by<NarrowTag>(args, part);
  } else {
    multiply_part_by<WideTag>(args, part);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
