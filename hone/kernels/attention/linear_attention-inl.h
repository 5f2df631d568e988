// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see linear_attention.cc.
#if defined(HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_INL_H_
#undef HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_INL_H_
#else
#define HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "hone/kernels/attention/linear_attention_work.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using FavorTag = hn::CappedTag<float, 16>;

// c[i, j] = sum_k a(i, k) b[k, j]; with `add`, c[i, j] is added. Computes columns up to a multiple
// of a panel.
struct FavorProduct {
  const float* a = nullptr;
  Index a_row = 0, a_depth = 0;  // steps of i and k
  const float* b = nullptr;
  Index b_stride = 0;
  float* c = nullptr;
  Index c_stride = 0;
  Index rows = 0, depth = 0, cols = 0;
  bool add = false;
};

// Computes kRows rows of a panel of two vectors. Twelve sums and three operands fit the 16
// registers of AVX2. They are separate variables, because sizeless vectors cannot form arrays.
template <int kRows>
HWY_INLINE void multiply_group(const FavorProduct& p, Index row, Index col) {
  const FavorTag d;
  using V = hn::Vec<FavorTag>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + col;
  float* c = p.c + row * p.c_stride + col;
  const auto start = [&](int r, Index at) HWY_ATTR {
    return r < kRows && p.add ? hn::LoadU(d, c + r * p.c_stride + at) : hn::Zero(d);
  };
  V l0 = start(0, 0), l1 = start(1, 0), l2 = start(2, 0);
  V l3 = start(3, 0), l4 = start(4, 0), l5 = start(5, 0);
  V r0 = start(0, lanes), r1 = start(1, lanes), r2 = start(2, lanes);
  V r3 = start(3, lanes), r4 = start(4, lanes), r5 = start(5, lanes);
  for (Index k = 0; k < p.depth; ++k, a += p.a_depth, b += p.b_stride) {
    const V left = hn::LoadU(d, b), right = hn::LoadU(d, b + lanes);
    const auto step = [&](int r, V& to_left, V& to_right) HWY_ATTR {
      const V weight = hn::Set(d, a[r * p.a_row]);
      to_left = hn::MulAdd(weight, left, to_left);
      to_right = hn::MulAdd(weight, right, to_right);
    };
    step(0, l0, r0);
    if constexpr (kRows > 1) step(1, l1, r1);
    if constexpr (kRows > 2) step(2, l2, r2);
    if constexpr (kRows > 3) step(3, l3, r3);
    if constexpr (kRows > 4) step(4, l4, r4);
    if constexpr (kRows > 5) step(5, l5, r5);
  }
  const auto finish = [&](int r, V left, V right) HWY_ATTR {
    hn::StoreU(left, d, c + r * p.c_stride);
    hn::StoreU(right, d, c + r * p.c_stride + lanes);
  };
  finish(0, l0, r0);
  if constexpr (kRows > 1) finish(1, l1, r1);
  if constexpr (kRows > 2) finish(2, l2, r2);
  if constexpr (kRows > 3) finish(3, l3, r3);
  if constexpr (kRows > 4) finish(4, l4, r4);
  if constexpr (kRows > 5) finish(5, l5, r5);
}

HWY_INLINE Index panel_width() { return 2 * static_cast<Index>(hn::Lanes(FavorTag())); }

HWY_NOINLINE void multiply_favor(const FavorProduct& p) {
  const Index groups = ceil_div(p.rows, Index{6});
  for (Index col = 0; col < p.cols; col += panel_width()) {
    for (Index group = 0; group < groups; ++group) {  // group sizes differ by 1 at most
      const Index row = group * p.rows / groups;
      switch ((group + 1) * p.rows / groups - row) {
        case 1:
          multiply_group<1>(p, row, col);
          break;
        case 2:
          multiply_group<2>(p, row, col);
          break;
        case 3:
          multiply_group<3>(p, row, col);
          break;
        case 4:
          multiply_group<4>(p, row, col);
          break;
        case 5:
          multiply_group<5>(p, row, col);
          break;
        default:
          multiply_group<6>(p, row, col);
      }
    }
  }
}

// The pairs of tokens (i, j <= i) of a chunk lie in blocks on and below the diagonal. Calls
// run(begin, end) with the tokens of each row or column of blocks.
template <class Run>
HWY_INLINE void for_blocks(const Run& run) {
  const Index size = std::max<Index>(16, panel_width());
  for (Index at = 0; at < kFavorChunk; at += size) run(at, at + size);
}

// to[j, i] = from[i, j]. `rows` must be a multiple of 4; `cols` is rounded up to one.
HWY_NOINLINE void transpose(const float* from, Index from_stride, Index rows, Index cols, float* to,
                            Index to_stride) {
  const hn::CappedTag<float, 4> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  HWY_ALIGN float block[16];
  for (Index i = 0; i < rows; i += 4) {
    for (Index j = 0; j < cols; j += lanes) {
      const float* at = from + i * from_stride + j;
      hn::StoreInterleaved4(hn::LoadU(d, at), hn::LoadU(d, at + from_stride),
                            hn::LoadU(d, at + 2 * from_stride), hn::LoadU(d, at + 3 * from_stride),
                            d, block);
      for (Index lane = 0; lane < lanes; ++lane) {
        std::memcpy(to + (j + lane) * to_stride + i, block + 4 * lane, 4 * sizeof(float));
      }
    }
  }
}

template <class Change>
HWY_INLINE void for_vectors(Index count, const Change& change) {
  const auto lanes = static_cast<Index>(hn::Lanes(FavorTag()));
  for (Index i = 0; i < count; i += lanes) change(i);
}

// Multiplies `count` numbers, rounded up to a vector.
HWY_INLINE void scale_row(float* row, Index count, float factor) {
  const FavorTag d;
  for_vectors(count, [&](Index i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), hn::Set(d, factor)), d, row + i);
  });
}

// e^(from - to), also for equal infinities.
HWY_INLINE float decay(float from, float to) { return from == to ? 1.0f : std::exp(from - to); }

// factors[i] = decay(upto[i], end) for keys, or decay(before, upto[i]) for queries.
HWY_INLINE void fill_decays(const FavorExponents& exponents, bool are_queries, float* factors) {
  for (Index i = 0; i < kFavorChunk; ++i) {
    factors[i] = are_queries ? decay(exponents.before, exponents.upto[i])
                             : decay(exponents.upto[i], exponents.end());
  }
}
HWY_INLINE void scale_rows(float* rows, Index stride, Index cols, const float* factors) {
  for (Index i = 0; i < kFavorChunk; ++i) scale_row(rows + i * stride, cols, factors[i]);
}
HWY_INLINE void scale_columns(float* rows, Index count, const float* factors) {
  const FavorTag d;
  for (Index row = 0; row < count; ++row, rows += kTokenStride) {
    for_vectors(kFavorChunk, [&](Index i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, rows + i), hn::LoadU(d, factors + i)), d, rows + i);
    });
  }
}

// Zeros the pairs with j > i in the blocks on the diagonal and multiplies the others by
// decay(M_j, M_i). Rows are queries i, or keys j.
HWY_INLINE void finish_pairs(float* pairs, bool rows_are_queries, const FavorExponents& exponents) {
  for_blocks([&](Index begin, Index end) HWY_ATTR {
    for (Index row = begin; row < end; ++row) {
      float* to = pairs + row * kTokenStride;
      const Index first = rows_are_queries ? 0 : row;
      const Index last = rows_are_queries ? row : kFavorChunk - 1;
      if (rows_are_queries) {
        std::fill(to + row + 1, to + end, 0.0f);
      } else {
        std::fill(to + begin, to + row, 0.0f);
      }
      if (exponents.is_flat()) continue;
      const float* upto = exponents.upto;
      float factor = 1;
      for (Index at = first; at <= last; ++at) {  // exponents have long runs
        if (at == first || upto[at] != upto[at - 1]) {
          factor = rows_are_queries ? decay(upto[at], upto[row]) : decay(upto[row], upto[at]);
        }
        to[at] *= factor;
      }
    }
  });
}

// to [64, dim] = scale * rows of one head, which are `step` apart; zeros for invalid tokens. `one`
// adds a column: 1 for valid tokens, otherwise 0.
HWY_INLINE void load_tokens(const FavorChunk& chunk, const float* from, Index step, Index dim,
                            float scale, bool one, float* to, Index stride) {
  for (Index i = 0; i < chunk.rows; ++i, to += stride) {
    const bool valid = chunk.is_valid(i);
    if (valid) {
      const float* row = from + (chunk.first + i) * step;
      for (Index j = 0; j < dim; ++j) to[j] = scale * row[j];
    } else {
      std::fill_n(to, dim, 0.0f);
    }
    if (one) to[dim] = valid ? 1.0f : 0.0f;
  }
}

HWY_INLINE float input_scale(const LinearAttentionArgs& args) {
  return args.kind == FeatureKind::Relu ? 1 / std::sqrt(static_cast<float>(args.features))
                                        : 1 / std::sqrt(std::sqrt(static_cast<float>(args.qk_dim)));
}

HWY_INLINE float half_square(const float* x, Index dim) {
  float sum = 0;
  for (Index i = 0; i < dim; ++i) sum += x[i] * x[i];
  return sum / 2;
}

// Replaces the products w_j . x of a row by e^(w_j . x - shift), or by NaN if `half` is not finite.
// The shift of a query is its largest product. The shift of a key is `half` = |x|^2 / 2 plus
// `highest`, the largest exponent so far, which this call updates.
HWY_INLINE void exponentiate(float* row, Index m, bool is_query, float half, float& highest) {
  const FavorTag d;
  if (!std::isfinite(half)) {
    std::fill_n(row, m, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const Index padded = round_up(m, static_cast<Index>(hn::Lanes(d)));
  std::fill(row + m, row + padded, std::numeric_limits<float>::lowest());
  auto largest = hn::Set(d, std::numeric_limits<float>::lowest());
  for_vectors(m, [&](Index f) HWY_ATTR { largest = hn::Max(largest, hn::LoadU(d, row + f)); });
  float shift = hn::GetLane(hn::MaxOfLanes(d, largest));
  if (!is_query) {
    highest = std::max(highest, shift - half);
    shift = half + highest;
  }
  const auto shifts = hn::Set(d, shift);
  for_vectors(m, [&](Index f) HWY_ATTR {
    hn::StoreU(hn::Exp(d, hn::Sub(hn::LoadU(d, row + f), shifts)), d, row + f);
  });
}

HWY_INLINE void rectify(float* row, Index m, float eps) {
  const FavorTag d;
  for_vectors(m, [&](Index f) HWY_ATTR {
    const auto value = hn::LoadU(d, row + f);
    const auto positive = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(d)), value);  // keeps NaN
    hn::StoreU(hn::Add(positive, hn::Set(d, eps)), d, row + f);
  });
}

// phi [64, features] of the tokens of a head that start at `from`. Features of keys are relative to
// the largest exponent so far, from exponents->before on. Features of queries, for which
// `exponents` is null, are relative to the query's own largest exponent.
HWY_NOINLINE void make_features(const FavorWork& work, const FavorChunk& chunk, const float* from,
                                float* phi, FavorExponents* exponents) {
  const LinearAttentionArgs& args = *work.args;
  const Index m = args.features, stride = work.m_stride();
  load_tokens(chunk, from, args.heads * args.qk_dim, args.qk_dim, input_scale(args), false, work.x,
              work.x_stride());
  multiply_favor({.a = work.x,
                  .a_row = work.x_stride(),
                  .a_depth = 1,
                  .b = work.omega_t,
                  .b_stride = stride,
                  .c = phi,
                  .c_stride = stride,
                  .rows = chunk.count,
                  .depth = args.qk_dim,
                  .cols = m});
  float highest = exponents == nullptr ? 0 : exponents->before;
  for (Index i = 0; i < chunk.rows; ++i) {
    float* row = phi + i * stride;
    if (!chunk.is_valid(i)) {
      std::fill_n(row, stride, 0.0f);
    } else if (args.kind == FeatureKind::Relu) {
      rectify(row, m, args.eps);
    } else {
      const float half = half_square(work.x + i * work.x_stride(), args.qk_dim);
      exponentiate(row, m, exponents == nullptr, half, highest);
    }
    if (exponents != nullptr) exponents->upto[i] = highest;
  }
  if (exponents == nullptr) return;
  std::fill(exponents->upto + chunk.rows, std::end(exponents->upto), highest);
}

// state [v_dim + 1, features] = keep * state + y^T phi.
HWY_INLINE void advance(const FavorWork& work, const float* y, const float* phi, float keep,
                        Index count, float* state) {
  const Index rows = work.args->v_dim + 1, stride = work.m_stride();
  if (keep != 1) {
    for (Index e = 0; e < rows; ++e) scale_row(state + e * stride, work.args->features, keep);
  }
  multiply_favor({.a = y,
                  .a_row = 1,
                  .a_depth = work.y_stride(),
                  .b = phi,
                  .b_stride = stride,
                  .c = state,
                  .c_stride = stride,
                  .rows = rows,
                  .depth = count,
                  .cols = work.args->features,
                  .add = true});
}

// Adds the keys of a chunk to a state. Scales y in place.
HWY_INLINE void add_keys(const FavorWork& work, const FavorChunk& chunk, const float* phi,
                         const FavorExponents& exponents, float* state) {
  if (!exponents.is_flat()) {
    HWY_ALIGN float factors[kFavorChunk];
    fill_decays(exponents, false, factors);
    scale_rows(work.y, work.y_stride(), work.args->v_dim + 1, factors);
  }
  advance(work, work.y, phi, decay(exponents.before, exponents.end()), chunk.count, state);
}

// Copy between rows that are `features` apart and the rows of a worker's state.
HWY_INLINE void load_state(const FavorWork& work, const float* from, float* state) {
  const Index m = work.args->features;
  for (Index e = 0; e <= work.args->v_dim; ++e) {
    std::copy_n(from + e * m, m, state + e * work.m_stride());
  }
}
HWY_INLINE void store_state(const FavorWork& work, const float* state, float* to) {
  const Index m = work.args->features;
  for (Index e = 0; e <= work.args->v_dim; ++e) {
    std::copy_n(state + e * work.m_stride(), m, to + e * m);
  }
}

// The rows of one head of one sequence.
struct FavorHead {
  const LinearAttentionArgs& args;
  Index item = 0;  // sequence * heads + head

  Index sequence() const { return item / args.heads; }
  Index offset(Index tokens, Index dim) const {
    return (sequence() * tokens * args.heads + item % args.heads) * dim;
  }
  const float* q() const { return args.q + offset(args.queries, args.qk_dim); }
  const float* k() const { return args.k + offset(args.keys, args.qk_dim); }
  const float* v() const { return args.v + offset(args.keys, args.v_dim); }
  FavorChunk chunk_of(bool of_queries, Index chunk) const {
    const bool* mask = of_queries ? args.query_mask : args.key_mask;
    const Index tokens = of_queries ? args.queries : args.keys, first = chunk * kFavorChunk;
    return {.first = first,
            .count = std::min(kFavorChunk, tokens - first),
            .mask = mask == nullptr ? nullptr : mask + sequence() * tokens};
  }
};

HWY_INLINE void load_keys(const FavorWork& work, const FavorHead& head, const FavorChunk& chunk,
                          float* phi, FavorExponents& exponents) {
  const LinearAttentionArgs& args = *work.args;
  make_features(work, chunk, head.k(), phi, &exponents);
  load_tokens(chunk, head.v(), args.heads * args.v_dim, args.v_dim, 1, true, work.y,
              work.y_stride());
}

// out_t [v_dim + 1, 64] = the state times the features of the queries in phi_t.
HWY_INLINE void read_state(const FavorWork& work) {
  const LinearAttentionArgs& args = *work.args;
  multiply_favor({.a = work.state,
                  .a_row = work.m_stride(),
                  .a_depth = 1,
                  .b = work.phi_t,
                  .b_stride = kTokenStride,
                  .c = work.out_t,
                  .c_stride = kTokenStride,
                  .rows = args.v_dim + 1,
                  .depth = args.features,
                  .cols = kFavorChunk});
}

HWY_INLINE void store_out(const FavorWork& work, const FavorHead& head, const FavorChunk& chunk) {
  const LinearAttentionArgs& args = *work.args;
  HWY_ALIGN float inverse[kFavorChunk];
  const float* sums = work.out_t + args.v_dim * kTokenStride;
  for (Index i = 0; i < kFavorChunk; ++i) {
    inverse[i] = sums[i] < kLeastFeatureSum ? 0.0f : 1 / sums[i];
  }
  scale_columns(work.out_t, args.v_dim, inverse);
  transpose(work.out_t, kTokenStride, round_up(args.v_dim, 4), kFavorChunk, work.x,
            work.y_stride());
  float* out = args.out + head.offset(args.queries, args.v_dim);
  for (Index i = 0; i < chunk.count; ++i) {
    const Index token = chunk.first + i;
    std::copy_n(work.x + i * work.y_stride(), args.v_dim, out + token * args.heads * args.v_dim);
    if (args.inverse_sums != nullptr) {
      args.inverse_sums[head.item * args.queries + token] = inverse[i];
    }
  }
}

// Causal attention of one chunk.
HWY_INLINE void attend_chunk(const FavorWork& work, const FavorHead& head, Index index,
                             FavorExponents& exponents) {
  const LinearAttentionArgs& args = *work.args;
  const FavorChunk queries = head.chunk_of(true, index), keys = head.chunk_of(false, index);
  const Index rows = args.v_dim + 1;
  make_features(work, queries, head.q(), work.phi, nullptr);
  transpose(work.phi, work.m_stride(), kFavorChunk, args.features, work.phi_t, kTokenStride);
  load_keys(work, head, keys, work.phi, exponents);
  read_state(work);
  if (!exponents.is_flat()) {
    HWY_ALIGN float factors[kFavorChunk];
    fill_decays(exponents, true, factors);
    scale_columns(work.out_t, rows, factors);
  }
  for_blocks([&](Index begin, Index end) HWY_ATTR {
    multiply_favor({.a = work.phi + begin * work.m_stride(),
                    .a_row = work.m_stride(),
                    .a_depth = 1,
                    .b = work.phi_t + begin,
                    .b_stride = kTokenStride,
                    .c = work.pairs + begin * kTokenStride + begin,
                    .c_stride = kTokenStride,
                    .rows = end - begin,
                    .depth = args.features,
                    .cols = kFavorChunk - begin});
  });
  finish_pairs(work.pairs, false, exponents);
  for_blocks([&](Index begin, Index end) HWY_ATTR {
    multiply_favor({.a = work.y,
                    .a_row = 1,
                    .a_depth = work.y_stride(),
                    .b = work.pairs + begin,
                    .b_stride = kTokenStride,
                    .c = work.out_t + begin,
                    .c_stride = kTokenStride,
                    .rows = rows,
                    .depth = end,
                    .cols = end - begin,
                    .add = true});
  });
  store_out(work, head, queries);
  add_keys(work, keys, work.phi, exponents, work.state);
}

// Causal attention of one token in O(features * v_dim).
HWY_INLINE void attend_token(const FavorWork& work, const FavorHead& head,
                             FavorExponents& exponents) {
  const FavorTag d;
  const LinearAttentionArgs& args = *work.args;
  FavorChunk queries = head.chunk_of(true, 0), keys = head.chunk_of(false, 0);
  queries.rows = keys.rows = 1;
  load_keys(work, head, keys, work.phi, exponents);
  advance(work, work.y, work.phi, decay(exponents.before, exponents.end()), 1, work.state);
  make_features(work, queries, head.q(), work.phi, nullptr);
  for (Index e = 0; e <= args.v_dim; ++e) {
    auto sum = hn::Zero(d);
    const float* row = work.state + e * work.m_stride();
    for_vectors(args.features, [&](Index f) HWY_ATTR {  // phi is 0 after the last feature
      sum = hn::MulAdd(hn::LoadU(d, row + f), hn::LoadU(d, work.phi + f), sum);
    });
    work.out_t[e * kTokenStride] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
  store_out(work, head, queries);
}

HWY_INLINE void attend_causally(const FavorWork& work, const FavorHead& head) {
  const LinearAttentionArgs& args = *work.args;
  const bool goes_on = args.state != nullptr;
  float* saved = goes_on ? args.state + head.item * args.state_floats() : nullptr;
  FavorExponents exponents{.before = -std::numeric_limits<float>::infinity()};
  std::fill_n(work.state, work.state_size(), 0.0f);
  if (goes_on) {
    load_state(work, saved, work.state);
    exponents.before = args.max_exponent[head.item];
  }
  for (Index chunk = 0; chunk * kFavorChunk < args.queries; ++chunk) {
    if (args.checkpoints != nullptr && chunk % kFavorSegment == 0) {
      float* checkpoint = favor_checkpoint(args, head.item, chunk / kFavorSegment);
      store_state(work, work.state, checkpoint);
      checkpoint[args.state_floats()] = exponents.before;
    }
    if (goes_on && args.queries == 1) {
      attend_token(work, head, exponents);
    } else {
      attend_chunk(work, head, chunk, exponents);
    }
    exponents.before = exponents.end();
  }
  if (!goes_on) return;
  store_state(work, work.state, saved);
  args.max_exponent[head.item] = exponents.before;
}

HWY_INLINE void attend_to_all(const FavorWork& work, const FavorHead& head) {
  const LinearAttentionArgs& args = *work.args;
  FavorExponents exponents{.before = -std::numeric_limits<float>::infinity()};
  std::fill_n(work.state, work.state_size(), 0.0f);
  for (Index chunk = 0; chunk * kFavorChunk < args.keys; ++chunk) {
    const FavorChunk keys = head.chunk_of(false, chunk);
    load_keys(work, head, keys, work.phi, exponents);
    add_keys(work, keys, work.phi, exponents, work.state);
    exponents.before = exponents.end();
  }
  if (args.checkpoints != nullptr) {
    float* checkpoint = favor_checkpoint(args, head.item, 0);
    store_state(work, work.state, checkpoint);
    checkpoint[args.state_floats()] = exponents.before;
  }
  for (Index chunk = 0; chunk * kFavorChunk < args.queries; ++chunk) {
    const FavorChunk queries = head.chunk_of(true, chunk);
    make_features(work, queries, head.q(), work.phi, nullptr);
    transpose(work.phi, work.m_stride(), kFavorChunk, args.features, work.phi_t, kTokenStride);
    read_state(work);
    store_out(work, head, queries);
  }
}

}  // namespace

// Lays out omega and its transpose.
void lay_out_omega(const LinearAttentionArgs& args, Index x_stride, Index m_stride, float* omega,
                   float* omega_t) {
  for (Index f = 0; f < args.features; ++f) {
    for (Index i = 0; i < args.qk_dim; ++i) {
      omega[f * x_stride + i] = omega_t[i * m_stride + f] = args.omega[f * args.qk_dim + i];
    }
  }
}

void attend_head(const FavorWork& work, Index item) {
  const FavorHead head{*work.args, item};
  if (work.args->causal) {
    attend_causally(work, head);
  } else {
    attend_to_all(work, head);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
