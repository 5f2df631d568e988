// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see attention.cc.
#if defined(HONE_KERNELS_ATTENTION_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_ATTENTION_INL_H_
#undef HONE_KERNELS_ATTENTION_ATTENTION_INL_H_
#else
#define HONE_KERNELS_ATTENTION_ATTENTION_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hone/kernels/activation/gelu-inl.h"
#include "hone/kernels/attention/attention_tile.h"
#include "hone/kernels/norm/exp_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_as_float(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_as_float(D d, const hwy::float16_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), from));
}
template <class D>
HWY_INLINE hn::Vec<D> load_as_float(D d, const std::int8_t* from) {
  const hn::Rebind<std::int8_t, D> bytes;
  return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(bytes, from)));
}

// c[r, j] = keep[r] * c[r, j] + sum_k a[r, k] * b[k, j], with one fused multiply-add per k in
// ascending order; without `keep` the sum starts at zero. Both halves of attention are this
// product.
template <class T>
struct SmallProduct {
  const float* a = nullptr;
  Index a_stride = 0;
  const T* b = nullptr;
  Index b_stride = 0;
  float* c = nullptr;
  Index c_stride = 0;
  const float* keep = nullptr;
  Index rows = 0, depth = 0, cols = 0;
};

// Computes columns [col, col + lanes) of kRows rows, using each vector of b kRows times. Eight rows
// need 8 accumulators and 1 vector of b. The accumulators are separate variables, because sizeless
// vectors cannot form arrays.
template <int kRows, class D, class T>
HWY_INLINE void multiply_strip(D d, const SmallProduct<T>& p, Index row, Index col) {
  using V = hn::Vec<D>;
  const float* a = p.a + row * p.a_stride;
  float* c = p.c + row * p.c_stride + col;
  const auto start = [&](int r) HWY_ATTR {
    if (r >= kRows || p.keep == nullptr) return hn::Zero(d);
    return hn::Mul(hn::LoadU(d, c + r * p.c_stride), hn::Set(d, p.keep[row + r]));
  };
  V c0 = start(0), c1 = start(1), c2 = start(2), c3 = start(3);
  V c4 = start(4), c5 = start(5), c6 = start(6), c7 = start(7);
  for (Index k = 0; k < p.depth; ++k) {
    const V b = load_as_float(d, p.b + k * p.b_stride + col);
    const auto step = [&](int r, V sum) HWY_ATTR {
      return hn::MulAdd(hn::Set(d, a[r * p.a_stride + k]), b, sum);
    };
    c0 = step(0, c0);
    if constexpr (kRows > 1) c1 = step(1, c1);
    if constexpr (kRows > 2) c2 = step(2, c2), c3 = step(3, c3);
    if constexpr (kRows > 4) c4 = step(4, c4), c5 = step(5, c5), c6 = step(6, c6), c7 = step(7, c7);
  }
  const auto finish = [&](int r, V sum) HWY_ATTR { hn::StoreU(sum, d, c + r * p.c_stride); };
  finish(0, c0);
  if constexpr (kRows > 1) finish(1, c1);
  if constexpr (kRows > 2) finish(2, c2), finish(3, c3);
  if constexpr (kRows > 4) finish(4, c4), finish(5, c5), finish(6, c6), finish(7, c7);
}

template <int kRows, class T>
HWY_INLINE void multiply_rows(const SmallProduct<T>& p, Index row) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 4> quarter;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(full));
  Index col = 0;
  for (; col + lanes <= p.cols; col += lanes) multiply_strip<kRows>(full, p, row, col);
  for (; col + 4 <= p.cols; col += 4) multiply_strip<kRows>(quarter, p, row, col);
  for (; col < p.cols; ++col) multiply_strip<kRows>(one, p, row, col);
}

template <class T>
HWY_NOINLINE void multiply(const SmallProduct<T>& p) {
  Index row = 0;
  for (; row + 8 <= p.rows; row += 8) multiply_rows<8>(p, row);
  if (row + 4 <= p.rows) multiply_rows<4>(p, row), row += 4;
  if (row + 2 <= p.rows) multiply_rows<2>(p, row), row += 2;
  if (row < p.rows) multiply_rows<1>(p, row);
}

template <class T>
HWY_INLINE void widen(const T* from, Index count, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));  // count is a multiple of 32
  for (Index i = 0; i < count; i += lanes) hn::StoreU(load_as_float(d, from + i), d, to + i);
}

// Processes whole vectors: rows of scores are kKvBlockTokens long.
HWY_NOINLINE void cap_scores(float* scores, Index count, float cap) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto caps = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (Index i = 0; i < count; i += lanes)
    hn::StoreU(soft_cap(d, hn::LoadU(d, scores + i), caps, inverse), d, scores + i);
}

// Converts the scores of one row over one block to probabilities relative to the new maximum and
// adds them to the state. Returns the factor for the row's earlier sums, which is exactly 1 for a
// block that adds nothing. Only the cells [first, visible) count; the others get probability 0. A
// NaN among the scores makes the sum, and so the row's output, NaN.
HWY_INLINE float update_softmax(float* scores, Index first, Index visible, float& max, float& sum) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  std::fill(scores + std::clamp<Index>(visible, 0, kKvBlockTokens), scores + kKvBlockTokens,
            kNothing);
  std::fill(scores, scores + std::clamp<Index>(first, 0, kKvBlockTokens), kNothing);
  auto highest = hn::Set(d, max);
  auto nan = hn::FirstN(d, 0);
  for (Index t = 0; t < kKvBlockTokens; t += lanes) {
    const auto score = hn::LoadU(d, scores + t);
    highest = hn::Max(highest, score);
    nan = hn::Or(nan, hn::IsNaN(score));
  }
  if (!hn::AllFalse(d, nan)) {  // hn::Exp would return 0
    std::fill(scores, scores + kKvBlockTokens, 0.0f);
    max = std::max(max, 0.0f);  // marks the segment as not masked, so that its sum counts
    sum = std::numeric_limits<float>::quiet_NaN();
    return 1.0f;
  }
  const float new_max = largest_lane(d, highest);
  if (visible <= std::max<Index>(first, 0) || new_max == kNothing) {
    std::fill(scores, scores + kKvBlockTokens, 0.0f);
    return 1.0f;
  }
  const auto shift = hn::Set(d, new_max);
  auto total = hn::Zero(d);
  for (Index t = 0; t < kKvBlockTokens; t += lanes) {
    const auto p = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + t), shift));
    hn::StoreU(p, d, scores + t);
    total = hn::Add(total, p);
  }
  const float keep = max == new_max ? 1.0f : std::exp(max - new_max);
  sum = sum * keep + hn::GetLane(hn::SumOfLanes(d, total));
  max = new_max;
  return keep;
}

// Keys and values of one block for the KV head of a tile, with the scales of int8 elements.
template <class T>
struct BlockPlanes {
  const T* keys = nullptr;
  const T* values = nullptr;
  const std::uint16_t* key_scales = nullptr;
  const std::uint16_t* value_scales = nullptr;
};

// Multiplies the 32 cells of each row by the scales of their tokens. With kKeepZeros, cells of 0
// stay 0 even if the scale is NaN: they are probabilities of tokens that a row does not see.
template <bool kKeepZeros>
HWY_INLINE void scale_cells(const std::uint16_t* scales, Index rows, float* cells) {
  constexpr float kMost = 65504;  // where f16 is emulated, its NaN reads as a larger number
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index t = 0; t < kKvBlockTokens; t += lanes) {
    const auto read = load_as_float(d, reinterpret_cast<const hwy::float16_t*>(scales + t));
    const auto scale = hn::IfThenElse(hn::Le(read, hn::Set(d, kMost)), read, hn::NaN(d));
    for (Index row = 0; row < rows; ++row) {
      float* cell = cells + row * kKvBlockTokens + t;
      const auto value = hn::LoadU(d, cell);
      auto scaled = hn::Mul(value, scale);
      if (kKeepZeros) scaled = hn::IfThenZeroElse(hn::Eq(value, hn::Zero(d)), scaled);
      hn::StoreU(scaled, d, cell);
    }
  }
}

// Processes one block of 32 positions for every row of the tile.
template <class T>
HWY_INLINE void attend_block(const AttentionTile& tile, Index block, const BlockPlanes<T>& planes,
                             const SoftmaxState& state) {
  const Index rows = tile.rows(), dim = tile.args->layout.head_dim;
  const float* q = tile.scratch;
  float* scores = tile.scratch + rows * dim;
  float* keep = scores + rows * kKvBlockTokens;
  for (Index half = 0; half < kKvBlockTokens; half += kKvKeyLanes) {
    multiply(SmallProduct<T>{.a = q,
                             .a_stride = dim,
                             .b = planes.keys + half * dim,
                             .b_stride = kKvKeyLanes,
                             .c = scores + half,
                             .c_stride = kKvBlockTokens,
                             .rows = rows,
                             .depth = dim,
                             .cols = kKvKeyLanes});
  }
  if (planes.key_scales != nullptr) scale_cells<false>(planes.key_scales, rows, scores);
  if (tile.args->soft_cap > 0) cap_scores(scores, rows * kKvBlockTokens, tile.args->soft_cap);
  const Index begin = block * kKvBlockTokens;
  for (Index row = 0; row < rows; ++row) {
    keep[row] = update_softmax(scores + row * kKvBlockTokens, tile.start(row) - begin,
                               tile.limit(row) + 1 - begin, state.max[row], state.sum[row]);
  }
  if (planes.value_scales != nullptr) scale_cells<true>(planes.value_scales, rows, scores);
  // Cells beyond the last row's position may contain anything, even NaN, so the product leaves them
  // out.
  const Index used = std::min(kKvBlockTokens, tile.limit(rows - 1) + 1 - begin);
  multiply(SmallProduct<T>{.a = scores,
                           .a_stride = kKvBlockTokens,
                           .b = planes.values,
                           .b_stride = dim,
                           .c = state.acc,
                           .c_stride = dim,
                           .keep = keep,
                           .rows = rows,
                           .depth = used,
                           .cols = dim});
}

// Attends to one block of elements T. Converts elements on the fly if each is read only once per
// product; otherwise converts them once beforehand.
template <class T>
HWY_INLINE void attend_narrow_block(const AttentionTile& tile, Index block,
                                    const BlockPlanes<T>& planes, const SoftmaxState& state) {
  const Index rows = tile.rows(), dim = tile.args->layout.head_dim;
  if (rows <= 8) return attend_block(tile, block, planes, state);
  float* wide = tile.scratch + rows * (dim + kKvBlockTokens + 1);
  const Index cells = kKvBlockTokens * dim;
  widen(planes.keys, cells, wide);
  widen(planes.values, cells, wide + cells);
  attend_block(tile, block,
               BlockPlanes<float>{wide, wide + cells, planes.key_scales, planes.value_scales},
               state);
}

// Writes the scaled queries of the tile to its scratch. Called once per tile, before
// attend_segment().
void load_tile_queries(const AttentionTile& tile) {
  const AttentionArgs& args = *tile.args;
  const Index dim = args.layout.head_dim, group = tile.group();
  for (Index row = 0; row < tile.rows(); ++row) {
    const Index head = tile.kv_head * group + row % group;
    const float* q = args.q + (tile.first_row + row / group) * args.q_stride + head * dim;
    for (Index i = 0; i < dim; ++i) tile.scratch[row * dim + i] = q[i] * args.scale;
  }
}

// Processes the positions of a segment that each row sees, into a fresh state.
void attend_segment(const AttentionTile& tile, Index segment, const SoftmaxState& state) {
  const Index rows = tile.rows(), dim = tile.args->layout.head_dim;
  std::fill_n(state.max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, rows, 0.0f);
  std::fill_n(state.acc, rows * dim, 0.0f);
  constexpr Index kBlocks = kKvSegmentTokens / kKvBlockTokens;
  const Index first = std::max(segment * kBlocks, tile.start(0) / kKvBlockTokens);
  const Index last = std::min(tile.limit(rows - 1) / kKvBlockTokens, (segment + 1) * kBlocks - 1);
  const KvView cache = tile.cache();
  for (Index block = first; block <= last; ++block) {
    const std::byte* keys = cache.keys(block, tile.kv_head);
    const std::byte* values = cache.values(block, tile.kv_head);
    if (cache.layout.dtype == Dtype::Float32) {
      attend_block(tile, block,
                   BlockPlanes<float>{reinterpret_cast<const float*>(keys),
                                      reinterpret_cast<const float*>(values)},
                   state);
    } else if (cache.layout.dtype == Dtype::Float16) {
      attend_narrow_block(
          tile, block,
          BlockPlanes<hwy::float16_t>{reinterpret_cast<const hwy::float16_t*>(keys),
                                      reinterpret_cast<const hwy::float16_t*>(values)},
          state);
    } else {
      attend_narrow_block(tile, block,
                          BlockPlanes<std::int8_t>{reinterpret_cast<const std::int8_t*>(keys),
                                                   reinterpret_cast<const std::int8_t*>(values),
                                                   cache.key_scales(block, tile.kv_head),
                                                   cache.value_scales(block, tile.kv_head)},
                          state);
    }
  }
}

// Adds a later segment's state to an earlier one's.
void merge_states(const SoftmaxState& total, const SoftmaxState& part, Index rows, Index dim) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index row = 0; row < rows; ++row) {
    if (std::isinf(part.max[row]) && part.max[row] < 0)
      continue;  // masked, so there is nothing to add
    const float max = std::max(total.max[row], part.max[row]);
    const float keep = std::exp(total.max[row] - max), add = std::exp(part.max[row] - max);
    total.max[row] = max;
    total.sum[row] = total.sum[row] * keep + part.sum[row] * add;
    float* to = total.acc + row * dim;
    const float* from = part.acc + row * dim;
    const auto merge = [&](auto tag, Index i) HWY_ATTR {
      const auto kept = hn::Mul(hn::LoadU(tag, to + i), hn::Set(tag, keep));
      hn::StoreU(hn::MulAdd(hn::LoadU(tag, from + i), hn::Set(tag, add), kept), tag, to + i);
    };
    Index i = 0;
    for (; i + lanes <= dim; i += lanes) merge(d, i);
    for (; i < dim; ++i) merge(one, i);
  }
}

void store_tile(const AttentionTile& tile, const SoftmaxState& state) {
  const AttentionArgs& args = *tile.args;
  const Index dim = args.layout.head_dim, group = tile.group();
  for (Index row = 0; row < tile.rows(); ++row) {
    const Index head = tile.kv_head * group + row % group;
    float* out = args.out + (tile.first_row + row / group) * args.out_stride + head * dim;
    const float scale = 1.0f / state.sum[row];
    for (Index i = 0; i < dim; ++i) out[i] = state.acc[row * dim + i] * scale;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
