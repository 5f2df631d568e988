// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see mine_negative.cc. Every output is a sum in the order of its
// index within one lane. So its bits depend on the instruction set only if that has no fused
// multiply-add.
#if defined(HONE_KERNELS_BATCHED_MINE_NEGATIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_BATCHED_MINE_NEGATIVE_INL_H_
#undef HONE_KERNELS_BATCHED_MINE_NEGATIVE_INL_H_
#else
#define HONE_KERNELS_BATCHED_MINE_NEGATIVE_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>

#include "hone/kernels/paco/mine_pool.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two vectors are at most a panel.
using MineTag = hn::CappedTag<double, static_cast<std::size_t>(MinePool::kPanelRows / 2)>;

// Multiplies kRows rows of w [., dim] by a panel, into kRows rows of out, kTileRows apart. Twelve
// sums and three operands fit the 16 registers of AVX2. Ten sums or more hide the latency of two
// multiply-adds per cycle. They are separate variables, because sizeless vectors cannot form
// arrays.
template <int kRows>
HWY_INLINE void multiply_rows_of_panel(const double* HWY_RESTRICT w, Index dim,
                                       const double* HWY_RESTRICT panel, double* HWY_RESTRICT out) {
  const MineTag d;
  using V = hn::Vec<MineTag>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index at = 0; at < MinePool::kPanelRows; at += 2 * lanes) {
    V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
    V b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
    for (Index c = 0; c < dim; ++c) {
      const double* column = panel + c * MinePool::kPanelRows + at;
      const V left = hn::LoadU(d, column), right = hn::LoadU(d, column + lanes);
      const auto step = [&](int r, V& a, V& b) HWY_ATTR {
        const V weight = hn::Set(d, w[r * dim + c]);
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
      hn::StoreU(a, d, out + r * MinePool::kTileRows + at);
      hn::StoreU(b, d, out + r * MinePool::kTileRows + at + lanes);
    };
    finish(0, a0, b0);
    if constexpr (kRows > 1) finish(1, a1, b1);
    if constexpr (kRows > 2) finish(2, a2, b2);
    if constexpr (kRows > 3) finish(3, a3, b3);
    if constexpr (kRows > 4) finish(4, a4, b4);
    if constexpr (kRows > 5) finish(5, a5, b5);
  }
}

// out [width, kTileRows] = w [width, dim] times `count` panels, at most a tile.
void multiply_panels(const double* w, Index width, Index dim, const double* panels, Index count,
                     double* out) {
  constexpr Index kMost = 6;
  const Index blocks = ceil_div(width, kMost);
  for (Index at = 0; at < count; ++at) {
    const double* panel = panels + at * dim * MinePool::kPanelRows;
    double* to = out + at * MinePool::kPanelRows;
    for (Index block = 0; block < blocks; ++block) {  // block sizes differ by 1 at most
      const Index row = block * width / blocks;
      const double* from = w + row * dim;
      double* sums = to + row * MinePool::kTileRows;
      switch ((block + 1) * width / blocks - row) {
        case 1:
          multiply_rows_of_panel<1>(from, dim, panel, sums);
          break;
        case 2:
          multiply_rows_of_panel<2>(from, dim, panel, sums);
          break;
        case 3:
          multiply_rows_of_panel<3>(from, dim, panel, sums);
          break;
        case 4:
          multiply_rows_of_panel<4>(from, dim, panel, sums);
          break;
        case 5:
          multiply_rows_of_panel<5>(from, dim, panel, sums);
          break;
        default:
          multiply_rows_of_panel<6>(from, dim, panel, sums);
          break;
      }
    }
  }
}

// to -= scale from
HWY_INLINE void subtract_scaled(double scale, const double* HWY_RESTRICT from, Index count,
                                double* HWY_RESTRICT to) {
  const MineTag d;
  const hn::CappedTag<double, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto scales = hn::Set(d, scale);
  Index i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::NegMulAdd(scales, hn::LoadU(d, from + i), hn::LoadU(d, to + i)), d, to + i);
  for (; i < count; ++i) {  // fused, like the whole vectors
    const auto rest =
        hn::NegMulAdd(hn::Set(one, scale), hn::LoadU(one, from + i), hn::LoadU(one, to + i));
    hn::StoreU(rest, one, to + i);
  }
}

HWY_INLINE void whiten_factor(const MineImage& image) {
  for (Index i = 0; i < image.rank; ++i) {
    const double* from = image.factor + i * image.dim;
    const double* chol = image.chol + i * image.rank;
    double* row = image.vectors + i * image.dim;
    for (Index c = 0; c < image.dim; ++c) row[c] = from[c];
    for (Index k = 0; k < i; ++k)
      subtract_scaled(chol[k], image.vectors + k * image.dim, image.dim, row);
    const double inverse = 1 / chol[i];
    for (Index c = 0; c < image.dim; ++c) row[c] *= inverse;
  }
}

void load_image(const MineImage& image) {
  constexpr Index kLanes = MinePool::kPanelRows, kStride = MinePool::kTileRows;
  const Index dim = image.dim;
  whiten_factor(image);
  for (Index i = 0; i < kLanes * dim; ++i) image.panel[i] = 0;
  for (Index first = 0; first < image.parts; first += kLanes) {
    const Index count = image.parts - first < kLanes ? image.parts - first : kLanes;
    double* rows = image.vectors + (image.rank + first) * dim;
    for (Index part = 0; part < count; ++part) {
      const double* from = image.anchor + (first + part) * dim;
      double square = 0;
      for (Index c = 0; c < dim; ++c) {
        const double value = from[c] - image.center[c];
        rows[part * dim + c] = image.panel[c * kLanes + part] = value;
        square += value * value;
      }
      image.square[first + part] = image.own[first + part] = square;
    }
    multiply_panels(image.vectors, image.rank, dim, image.panel, 1, image.products);
    for (Index part = 0; part < count; ++part) {
      for (Index r = 0; r < image.rank; ++r) {
        const double along = image.products[r * kStride + part];
        image.own[first + part] -= along * along;
        subtract_scaled(along, image.vectors + r * dim, dim, rows + part * dim);
      }
    }
  }
}

// Highway's EMU128 would return the largest finite number if all lanes are infinite.
HWY_INLINE double smallest_lane(hn::Vec<MineTag> v) {
  HWY_ALIGN double lanes[MinePool::kPanelRows / 2];
  hn::Store(v, MineTag(), lanes);
  double smallest = lanes[0];
  for (std::size_t i = 1; i < hn::Lanes(MineTag()); ++i)
    smallest = lanes[i] < smallest ? lanes[i] : smallest;
  return smallest;
}

// Computes |n|^2 - |V n|^2 of each row n of a tile; infinite if the row is not allowed.
HWY_INLINE void measure_rows(const MineTile& tile, double* HWY_RESTRICT rest) {
  const MineTag d;
  const hn::RebindToSigned<MineTag> di;
  const auto infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < tile.rows; i += lanes) {
    auto v = hn::LoadU(d, tile.squares + i);
    for (Index r = 0; r < tile.rank; ++r) {
      const auto along = hn::LoadU(d, tile.products + r * MinePool::kTileRows + i);
      v = hn::NegMulAdd(along, along, v);
    }
    if (tile.owner != nullptr) {
      const auto same = hn::Eq(hn::LoadU(di, tile.owner + i), hn::Set(di, tile.image));
      v = hn::IfThenElse(hn::RebindMask(d, same), infinity, v);
    }
    if (tile.label != nullptr) {
      const auto same = hn::Eq(hn::LoadU(di, tile.label + i), hn::Set(di, tile.image_label));
      v = hn::IfThenElse(hn::RebindMask(d, same), infinity, v);
    }
    hn::StoreU(v, d, rest + i);
  }
}

void rank_tile(const MineTile& tile) {
  const MineTag d;
  const auto infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  const auto minus_two = hn::Set(d, -2.0), scale = hn::Set(d, tile.inverse_delta);
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  double rest[MinePool::kTileRows];
  measure_rows(tile, rest);
  for (Index part = 0; part < tile.parts; ++part) {
    double* row = tile.products + (tile.rank + part) * MinePool::kTileRows;
    const auto own = hn::Set(d, tile.own[part]), threshold = hn::Set(d, tile.threshold[part]);
    auto lowest = infinity, lowest_beyond = infinity;
    for (Index i = 0; i < tile.rows; i += lanes) {
      const auto both = hn::Add(own, hn::LoadU(d, rest + i));
      const auto v = hn::Mul(hn::MulAdd(minus_two, hn::LoadU(d, row + i), both), scale);
      const auto is_finite = hn::Lt(hn::Abs(v), infinity);
      const auto q = hn::IfThenElse(is_finite, hn::Max(v, hn::Zero(d)), infinity);
      hn::StoreU(q, d, row + i);
      lowest = hn::Min(lowest, q);
      const auto beyond = hn::IfThenElse(hn::Gt(q, threshold), q, infinity);
      lowest_beyond = hn::Min(lowest_beyond, beyond);
    }
    tile.lowest[part] = smallest_lane(lowest);
    tile.lowest_beyond[part] = smallest_lane(lowest_beyond);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
