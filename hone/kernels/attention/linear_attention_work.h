// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "hone/kernels/attention/linear_attention.h"

// Private to kernels/attention: the memory of a worker, and the tokens of a chunk.
namespace hone::kernels {

inline constexpr Index kFavorChunk = 64;
// Chunks between saved states. The gradient recomputes the states between them.
inline constexpr Index kFavorSegment = 8;

// Returns the stride of rows of matrices. Rows are padded to the widest panel (two vectors of 64
// bytes) and are an odd number of cache lines apart, so that rows of a panel use different sets of
// a cache.
constexpr Index favor_stride(Index cols) { return round_up(cols, 32) + 16; }
inline constexpr Index kTokenStride = favor_stride(kFavorChunk);

// `count` tokens from `first` on of one sequence.
struct FavorChunk {
  Index first = 0, count = 0;
  Index rows = kFavorChunk;    // rows of matrices; rows from `count` on are 0
  const bool* mask = nullptr;  // mask of the sequence

  bool is_valid(Index i) const { return i < count && (mask == nullptr || mask[first + i]); }
};

// The largest exponent of the keys before a chunk and up to each of its tokens.
struct FavorExponents {
  float before = 0, upto[kFavorChunk] = {};

  float end() const { return upto[kFavorChunk - 1]; }
  bool is_flat() const { return before == end(); }
};

// Matrices of one worker. The suffix _t means transposed. y is [v, 1] of keys; query_y is its
// counterpart for queries in backward.
struct FavorWork {
  const LinearAttentionArgs* args = nullptr;
  const float *omega = nullptr, *omega_t = nullptr;  // [features, qk_dim], [qk_dim, features]
  float *x = nullptr, *y = nullptr, *phi = nullptr, *phi_t = nullptr;
  float *pairs = nullptr, *out_t = nullptr, *state = nullptr;
  // Backward only.
  float *more_pairs = nullptr, *y_t = nullptr, *query_y = nullptr, *grad_phi = nullptr;
  float *grad_state = nullptr, *segment_phi = nullptr, *segment_states = nullptr;

  Index m_stride() const { return favor_stride(args->features); }
  Index x_stride() const { return favor_stride(args->qk_dim); }
  Index y_stride() const { return favor_stride(args->v_dim + 1); }
  Index state_size() const { return (args->v_dim + 1) * m_stride(); }
  Index phi_size() const { return kFavorChunk * m_stride(); }
  Index omega_size() const { return args->features * x_stride() + args->qk_dim * m_stride(); }

  // Lays out the matrices from `memory` on and returns their number of floats. If `memory` is null,
  // it only counts.
  Index lay_out(float* memory, bool backward) {
    Index used = 0;
    const auto take = [&](float*& matrix, Index floats) {
      if (memory != nullptr) matrix = memory + used;
      used += round_up(floats, 16);
    };
    const Index chunk = kFavorChunk;
    take(x, chunk * std::max(x_stride(), y_stride()));
    take(y, chunk * y_stride());
    take(phi, phi_size());
    take(phi_t, round_up(args->features, 4) * kTokenStride);
    take(pairs, chunk * kTokenStride);
    take(out_t, round_up(args->v_dim + 1, 4) * kTokenStride);
    if (!backward) {
      take(state, state_size());
      return used;
    }
    take(more_pairs, chunk * kTokenStride);
    take(y_t, round_up(args->v_dim + 1, 4) * kTokenStride);
    take(query_y, chunk * y_stride());
    take(grad_phi, std::max(phi_size(), args->features * kTokenStride));
    take(grad_state, state_size());
    take(segment_phi, (args->causal ? kFavorSegment : 1) * phi_size());
    take(segment_states, (args->causal ? kFavorSegment : 1) * state_size());
    return used;
  }
};

// Number of saved states of a head, each followed by its exponent. If causal, there is one before
// every kFavorSegment-th chunk; otherwise one of all keys.
inline Index favor_checkpoints(const LinearAttentionArgs& args) {
  return args.causal ? ceil_div(args.keys, kFavorChunk * kFavorSegment) : 1;
}
inline float* favor_checkpoint(const LinearAttentionArgs& args, Index head, Index segment) {
  return args.checkpoints + (head * favor_checkpoints(args) + segment) * (args.state_floats() + 1);
}

}  // namespace hone::kernels
