// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see apply_dense.cc. Each sum runs over the depth in ascending
// order within one lane, so its bits do not depend on its position in a tile.
#if defined(HONE_KERNELS_SKETCH_DENSE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_SKETCH_DENSE_TILE_INL_H_
#undef HONE_KERNELS_SKETCH_DENSE_TILE_INL_H_
#else
#define HONE_KERNELS_SKETCH_DENSE_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/kernels/sketch/dense_tile.h"
#include "hone/kernels/sketch/strided.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using TileTag = hn::CappedTag<T, static_cast<std::size_t>(kWidestPanel<T> / 2)>;

// Multiplies kRows rows of weights by a panel of two vectors. Twelve sums and three operands fit
// the 16 registers of AVX2. They are separate variables, because sizeless vectors cannot form
// arrays.
template <int kRows, class T>
HWY_INLINE void add_products(const DenseTile<T>& tile, Index row, T* HWY_RESTRICT to) {
  const TileTag<T> d;
  using V = hn::Vec<TileTag<T>>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const T* weights = tile.weights + row * tile.row_step;
  const T* panel = tile.panel;
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
  V b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
  for (Index k = 0; k < tile.depth; ++k, weights += tile.depth_step, panel += 2 * lanes) {
    const V left = hn::LoadU(d, panel), right = hn::LoadU(d, panel + lanes);
    const auto step = [&](int r, V& a, V& b) HWY_ATTR {
      const V weight = hn::Set(d, weights[r * tile.row_step]);
      a = hn::MulAdd(weight, left, a);
      b = hn::MulAdd(weight, right, b);
    };
    step(0, a0, b0);
    if constexpr (kRows > 1) step(1, a1, b1);
    if constexpr (kRows > 2) step(2, a2, b2);
    if constexpr (kRows > 3) step(3, a3, b3);
    if constexpr (kRows > 4) step(4, a4, b4);
    if constexpr (kRows > 5) step(5, a5, b5);
  }
  const auto finish = [&](int r, V a, V b) HWY_ATTR {
    T* sums = to + (row + r) * tile.sum_stride;
    hn::StoreU(hn::Add(hn::LoadU(d, sums), a), d, sums);
    hn::StoreU(hn::Add(hn::LoadU(d, sums + lanes), b), d, sums + lanes);
  };
  finish(0, a0, b0);
  if constexpr (kRows > 1) finish(1, a1, b1);
  if constexpr (kRows > 2) finish(2, a2, b2);
  if constexpr (kRows > 3) finish(3, a3, b3);
  if constexpr (kRows > 4) finish(4, a4, b4);
  if constexpr (kRows > 5) finish(5, a5, b5);
}

// Packs the panel of columns [at, at + two vectors) of b, with zeros after the last column.
template <class T>
HWY_INLINE void pack_panel(const DenseTile<T>& tile, Index at) {
  const TileTag<T> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const T* from = tile.b + at * tile.b_col_stride;
  T* to = tile.panel;
  if (tile.b_col_stride == 1 && tile.width - at >= 2 * lanes) {
    for (Index k = 0; k < tile.depth; ++k, from += tile.b_row_stride, to += 2 * lanes) {
      hn::StoreU(hn::LoadU(d, from), d, to);
      hn::StoreU(hn::LoadU(d, from + lanes), d, to + lanes);
    }
    return;
  }
  const Index here = tile.width - at < 2 * lanes ? tile.width - at : 2 * lanes;
  if (here < 2 * lanes) {
    for (Index i = 0; i < tile.depth * 2 * lanes; ++i) to[i] = 0;
  }
  pack<T>({from, tile.depth, here, tile.b_row_stride, tile.b_col_stride}, to, 2 * lanes);
}

template <class T>
HWY_INLINE void multiply_tile(const DenseTile<T>& tile) {
  const Index panel_width = 2 * static_cast<Index>(hn::Lanes(TileTag<T>()));
  constexpr Index kMost = 6;
  const Index groups = ceil_div(tile.rows, kMost);
  for (Index at = 0; at < tile.width; at += panel_width) {
    pack_panel(tile, at);
    T* to = tile.sums + at;
    for (Index group = 0; group < groups; ++group) {  // group sizes differ by 1 at most
      const Index row = group * tile.rows / groups;
      switch ((group + 1) * tile.rows / groups - row) {
        case 1:
          add_products<1>(tile, row, to);
          break;
        case 2:
          add_products<2>(tile, row, to);
          break;
        case 3:
          add_products<3>(tile, row, to);
          break;
        case 4:
          add_products<4>(tile, row, to);
          break;
        case 5:
          add_products<5>(tile, row, to);
          break;
        default:
          add_products<6>(tile, row, to);
          break;
      }
    }
  }
}

void multiply_tile_f32(const DenseTile<float>& tile) { multiply_tile(tile); }
void multiply_tile_f64(const DenseTile<double>& tile) { multiply_tile(tile); }

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
