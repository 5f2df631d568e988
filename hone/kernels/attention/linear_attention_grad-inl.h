// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see linear_attention.cc. With D_i the denominator of row i, the
// numerator [N_i, D_i] has the gradient query_y_i = [g_i, -g_i . out_i] / D_i. With the exponents
// M_i, and the state Z before a chunk,
//   grad phi(q_i) = e^(M - M_i) query_y_i Z
//                   + sum_(j <= i of the chunk) e^(M_j - M_i) (query_y_i . y_j) phi(k_j).
// The formula for keys is the mirror image, with G, the same sum over the queries behind the chunk,
// in place of Z.
#if defined(HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_GRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_GRAD_INL_H_
#undef HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_GRAD_INL_H_
#else
#define HONE_KERNELS_ATTENTION_LINEAR_ATTENTION_GRAD_INL_H_
#endif

#include "hone/kernels/attention/linear_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace {

// Everything that the gradient of one head needs.
struct FavorGrad {
  const LinearAttentionGradArgs& args;
  const FavorWork& work;
  const FavorHead& head;
};

// Loads query_y of a chunk; zeros for invalid tokens.
HWY_INLINE void load_query_y(const FavorGrad& grad, const FavorChunk& chunk) {
  const LinearAttentionArgs& args = grad.args.forward;
  const Index dim = args.v_dim, step = args.heads * dim;
  const Index offset = grad.head.offset(args.queries, dim);
  for (Index i = 0; i < kFavorChunk; ++i) {
    float* y = grad.work.query_y + i * grad.work.y_stride();
    if (!chunk.is_valid(i)) {
      std::fill_n(y, dim + 1, 0.0f);
      continue;
    }
    const Index token = chunk.first + i;
    const float* by_out = grad.args.grad_out + offset + token * step;
    const float* out = args.out + offset + token * step;
    const float inverse = args.inverse_sums[grad.head.item * args.queries + token];
    float dot = 0;
    for (Index e = 0; e < dim; ++e) {
      y[e] = by_out[e] * inverse;
      dot += by_out[e] * out[e];
    }
    y[dim] = -dot * inverse;
  }
}

// Multiplies grad_phi [rows, cols] by the derivatives of phi with respect to w_j . x. If `sums` is
// not null, it receives the sums of columns for softmax.
HWY_INLINE void through_features(const LinearAttentionArgs& args, const float* phi, Index rows,
                                 Index cols, Index stride, float* grad_phi, float* sums) {
  const FavorTag d;
  if (sums != nullptr) std::fill_n(sums, cols, 0.0f);
  for (Index row = 0; row < rows; ++row, phi += stride, grad_phi += stride) {
    for_vectors(cols, [&](Index i) HWY_ATTR {
      const auto given = hn::LoadU(d, grad_phi + i), feature = hn::LoadU(d, phi + i);
      if (args.kind == FeatureKind::Relu) {
        const auto is_active = hn::Gt(feature, hn::Set(d, args.eps));
        hn::StoreU(hn::IfThenElseZero(is_active, given), d, grad_phi + i);
        return;
      }
      const auto through = hn::Mul(given, feature);
      hn::StoreU(through, d, grad_phi + i);
      if (sums != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, sums + i), through), d, sums + i);
    });
  }
}

// Multiplies the gradient in grad_phi, a(i, f), by omega and writes the result. Keys pass `sums`
// over f, because their features also depend on |x|^2.
HWY_INLINE void store_input_grad(const FavorGrad& grad, const FavorChunk& chunk, Index a_row,
                                 Index a_depth, const float* sums) {
  const LinearAttentionArgs& args = grad.args.forward;
  const FavorWork& work = grad.work;
  const Index dim = args.qk_dim, step = args.heads * dim;
  multiply_favor({.a = work.grad_phi,
                  .a_row = a_row,
                  .a_depth = a_depth,
                  .b = work.omega,
                  .b_stride = work.x_stride(),
                  .c = work.x,
                  .c_stride = work.x_stride(),
                  .rows = chunk.count,
                  .depth = args.features,
                  .cols = dim});
  const float scale = input_scale(args);
  const bool is_key = sums != nullptr;
  const Index offset = grad.head.offset(is_key ? args.keys : args.queries, dim);
  float* to = (is_key ? grad.args.grad_k : grad.args.grad_q) + offset + chunk.first * step;
  const float* from = (is_key ? args.k : args.q) + offset + chunk.first * step;
  for (Index i = 0; i < chunk.count; ++i, to += step, from += step) {
    const float* x = work.x + i * work.x_stride();
    if (!chunk.is_valid(i)) {
      std::fill_n(to, dim, 0.0f);
    } else if (!is_key || args.kind == FeatureKind::Relu) {
      for (Index j = 0; j < dim; ++j) to[j] = scale * x[j];
    } else {
      for (Index j = 0; j < dim; ++j) to[j] = scale * (x[j] - sums[i] * scale * from[j]);
    }
  }
}

// pairs = phi(q_i) . phi(k_j) and more_pairs = query_y_i . y_j, for j <= i, with their decays.
HWY_INLINE void make_pairs(const FavorWork& work, const FavorExponents& exponents) {
  const auto fill = [&](const float* a, Index stride, const float* b, Index depth, float* to)
                        HWY_ATTR {
                          for_blocks([&](Index begin, Index end) HWY_ATTR {
                            multiply_favor({.a = a + begin * stride,
                                            .a_row = stride,
                                            .a_depth = 1,
                                            .b = b,
                                            .b_stride = kTokenStride,
                                            .c = to + begin * kTokenStride,
                                            .c_stride = kTokenStride,
                                            .rows = end - begin,
                                            .depth = depth,
                                            .cols = end});
                          });
                          finish_pairs(to, true, exponents);
                        };
  fill(work.phi, work.m_stride(), work.phi_t, work.args->features, work.pairs);
  fill(work.query_y, work.y_stride(), work.y_t, work.args->v_dim + 1, work.more_pairs);
}

// Stores the gradient of the queries of a chunk. query_y must have the decays of queries. phi_k is
// null unless causal.
HWY_INLINE void store_query_grad(const FavorGrad& grad, const FavorChunk& chunk, const float* state,
                                 const float* phi_k) {
  const FavorWork& work = grad.work;
  const Index m = work.args->features, stride = work.m_stride();
  multiply_favor({.a = work.query_y,
                  .a_row = work.y_stride(),
                  .a_depth = 1,
                  .b = state,
                  .b_stride = stride,
                  .c = work.grad_phi,
                  .c_stride = stride,
                  .rows = kFavorChunk,
                  .depth = work.args->v_dim + 1,
                  .cols = m});
  if (phi_k != nullptr) {
    for_blocks([&](Index begin, Index end) HWY_ATTR {
      multiply_favor({.a = work.more_pairs + begin * kTokenStride,
                      .a_row = kTokenStride,
                      .a_depth = 1,
                      .b = phi_k,
                      .b_stride = stride,
                      .c = work.grad_phi + begin * stride,
                      .c_stride = stride,
                      .rows = end - begin,
                      .depth = end,
                      .cols = m,
                      .add = true});
    });
  }
  through_features(*work.args, work.phi, chunk.count, m, stride, work.grad_phi, nullptr);
  store_input_grad(grad, chunk, stride, 1, nullptr);
}

// to [rows, 64] = a times b, where a is a matrix like grad_state. If causal, adds a sum over the
// queries i >= j of the chunk.
struct KeySide {
  const float* a = nullptr;
  Index a_row = 0, a_depth = 0;
  const float* b = nullptr;  // rows of 64 tokens
  Index depth = 0;
  const float* queries = nullptr;  // [64, rows], query_stride apart
  Index query_stride = 0;
  const float* pairs = nullptr;
  float* to = nullptr;
  Index rows = 0;
};
HWY_INLINE void multiply_keys(const KeySide& side, bool causal, const float* decays) {
  multiply_favor({.a = side.a,
                  .a_row = side.a_row,
                  .a_depth = side.a_depth,
                  .b = side.b,
                  .b_stride = kTokenStride,
                  .c = side.to,
                  .c_stride = kTokenStride,
                  .rows = side.rows,
                  .depth = side.depth,
                  .cols = kFavorChunk});
  if (!causal) return;
  if (decays != nullptr) scale_columns(side.to, side.rows, decays);
  for_blocks([&](Index begin, Index end) HWY_ATTR {
    multiply_favor({.a = side.queries + begin * side.query_stride,
                    .a_row = 1,
                    .a_depth = side.query_stride,
                    .b = side.pairs + begin * kTokenStride + begin,
                    .b_stride = kTokenStride,
                    .c = side.to + begin,
                    .c_stride = kTokenStride,
                    .rows = side.rows,
                    .depth = kFavorChunk - begin,
                    .cols = end - begin,
                    .add = true});
  });
}

// Stores the gradients of the keys and values of a chunk. phi_t has their features and y_t their y.
// query_y must be without decays.
HWY_INLINE void store_key_grads(const FavorGrad& grad, const FavorChunk& chunk,
                                const FavorExponents& exponents) {
  const FavorWork& work = grad.work;
  const LinearAttentionArgs& args = *work.args;
  const Index m = args.features, stride = work.m_stride();
  HWY_ALIGN float factors[kFavorChunk], sums[kFavorChunk];
  if (!exponents.is_flat()) fill_decays(exponents, false, factors);
  const float* decays = exponents.is_flat() ? nullptr : factors;
  multiply_keys({.a = work.grad_state,
                 .a_row = stride,
                 .a_depth = 1,
                 .b = work.phi_t,
                 .depth = m,
                 .queries = work.query_y,
                 .query_stride = work.y_stride(),
                 .pairs = work.pairs,
                 .to = work.out_t,
                 .rows = args.v_dim},
                args.causal, decays);
  transpose(work.out_t, kTokenStride, round_up(args.v_dim, 4), kFavorChunk, work.x,
            work.y_stride());
  float* to = grad.args.grad_v + grad.head.offset(args.keys, args.v_dim);
  for (Index j = 0; j < chunk.count; ++j) {
    std::copy_n(work.x + j * work.y_stride(), args.v_dim,
                to + (chunk.first + j) * args.heads * args.v_dim);
  }
  multiply_keys({.a = work.grad_state,
                 .a_row = 1,
                 .a_depth = stride,
                 .b = work.y_t,
                 .depth = args.v_dim + 1,
                 .queries = work.phi,
                 .query_stride = stride,
                 .pairs = work.more_pairs,
                 .to = work.grad_phi,
                 .rows = m},
                args.causal, decays);
  through_features(args, work.phi_t, m, kFavorChunk, kTokenStride, work.grad_phi, sums);
  store_input_grad(grad, chunk, 1, kTokenStride, sums);
}

HWY_INLINE void transpose_keys(const FavorWork& work, const float* phi_k) {
  transpose(phi_k, work.m_stride(), kFavorChunk, work.args->features, work.phi_t, kTokenStride);
  transpose(work.y, work.y_stride(), kFavorChunk, work.args->v_dim + 1, work.y_t, kTokenStride);
}

HWY_INLINE void differentiate_chunk(const FavorGrad& grad, Index index, const float* phi_k,
                                    const float* state, const FavorExponents& exponents) {
  const FavorWork& work = grad.work;
  const LinearAttentionArgs& args = *work.args;
  const FavorHead& head = grad.head;
  const FavorChunk queries = head.chunk_of(true, index), keys = head.chunk_of(false, index);
  make_features(work, queries, head.q(), work.phi, nullptr);
  load_query_y(grad, queries);
  load_tokens(keys, head.v(), args.heads * args.v_dim, args.v_dim, 1, true, work.y,
              work.y_stride());
  transpose_keys(work, phi_k);
  make_pairs(work, exponents);
  store_key_grads(grad, keys, exponents);
  if (!exponents.is_flat()) {
    HWY_ALIGN float factors[kFavorChunk];
    fill_decays(exponents, true, factors);
    scale_rows(work.query_y, work.y_stride(), args.v_dim + 1, factors);
  }
  store_query_grad(grad, queries, state, phi_k);
  advance(work, work.query_y, work.phi, decay(exponents.before, exponents.end()), queries.count,
          work.grad_state);
}

HWY_INLINE void differentiate_causal(const FavorGrad& grad) {
  const FavorWork& work = grad.work;
  const LinearAttentionArgs& args = *work.args;
  const Index chunks = ceil_div(args.queries, kFavorChunk);
  FavorExponents exponents[kFavorSegment];
  const auto phi_of = [&](Index i) { return work.segment_phi + i * work.phi_size(); };
  const auto state_of = [&](Index i) { return work.segment_states + i * work.state_size(); };
  for (Index segment = favor_checkpoints(args) - 1; segment >= 0; --segment) {
    const Index first = segment * kFavorSegment, count = std::min(kFavorSegment, chunks - first);
    const float* checkpoint = favor_checkpoint(args, grad.head.item, segment);
    load_state(work, checkpoint, state_of(0));
    exponents[0].before = checkpoint[args.state_floats()];
    for (Index i = 0; i < count; ++i) {
      const FavorChunk keys = grad.head.chunk_of(false, first + i);
      load_keys(work, grad.head, keys, phi_of(i), exponents[i]);
      if (i + 1 == count) break;
      std::copy_n(state_of(i), work.state_size(), state_of(i + 1));
      add_keys(work, keys, phi_of(i), exponents[i], state_of(i + 1));
      exponents[i + 1].before = exponents[i].end();
    }
    for (Index i = count - 1; i >= 0; --i) {
      differentiate_chunk(grad, first + i, phi_of(i), state_of(i), exponents[i]);
    }
  }
}

HWY_INLINE void differentiate_all(const FavorGrad& grad) {
  const FavorWork& work = grad.work;
  const LinearAttentionArgs& args = *work.args;
  const float* checkpoint = favor_checkpoint(args, grad.head.item, 0);
  load_state(work, checkpoint, work.segment_states);
  FavorExponents exponents{.before = checkpoint[args.state_floats()]};
  for (Index chunk = 0; chunk * kFavorChunk < args.queries; ++chunk) {
    const FavorChunk queries = grad.head.chunk_of(true, chunk);
    make_features(work, queries, grad.head.q(), work.phi, nullptr);
    load_query_y(grad, queries);
    store_query_grad(grad, queries, work.segment_states, nullptr);
    advance(work, work.query_y, work.phi, 1, queries.count, work.grad_state);
  }
  for (Index chunk = 0; chunk * kFavorChunk < args.keys; ++chunk) {
    const FavorChunk keys = grad.head.chunk_of(false, chunk);
    load_keys(work, grad.head, keys, work.segment_phi, exponents);
    transpose_keys(work, work.segment_phi);
    store_key_grads(grad, keys, exponents);
  }
}

}  // namespace

void differentiate_head(const LinearAttentionGradArgs& args, const FavorWork& work, Index item) {
  const FavorHead head{*work.args, item};
  const FavorGrad grad{args, work, head};
  std::fill_n(work.grad_state, work.state_size(), 0.0f);
  if (work.args->causal) {
    differentiate_causal(grad);
  } else {
    differentiate_all(grad);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
