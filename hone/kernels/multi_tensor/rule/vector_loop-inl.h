// SPDX-License-Identifier: Apache-2.0
// Runs one rule over a chunk, vector by vector, compiled once per Highway target.
#if defined(HONE_VECTOR_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_VECTOR_LOOP_INL_H_
#undef HONE_VECTOR_LOOP_INL_H_
#else
#define HONE_VECTOR_LOOP_INL_H_
#endif

#include <cmath>

#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/prefetch.h"
#include "hone/kernels/multi_tensor/rule/narrow_loop-inl.h"
#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

template <class Rule>
HWY_INLINE void prefetch_slots(const ChunkOperands& chunk, Index i) {
  prefetch_ahead(chunk.param + i);
  prefetch_ahead(chunk.grad + i);
  if constexpr (Rule::kMomentum) prefetch_ahead(chunk.momentum + i);
  if constexpr (Rule::kSecondMoment) prefetch_ahead(chunk.second_moment + i);
}

// Steps the vector at element i.
template <class Rule, class Scalars>
HWY_INLINE void step_vector(const ChunkOperands& chunk, const Scalars& scalars, Index i) {
  const Floats d;
  FloatVec m = hn::Zero(d), v = m;
  if constexpr (Rule::kMomentum) m = hn::LoadU(d, chunk.momentum + i);
  if constexpr (Rule::kSecondMoment) v = hn::LoadU(d, chunk.second_moment + i);
  step_moments<Rule>(chunk, scalars, i, m, v);
  if constexpr (Rule::kMomentum) hn::StoreU(m, d, chunk.momentum + i);
  if constexpr (Rule::kSecondMoment) hn::StoreU(v, d, chunk.second_moment + i);
}

// Rule has `kMomentum, kSecondMoment, kExtra` for its slots, and `apply(scalars, p, g, m, v, x)`,
// which steps one vector of each slot; g is scaled and limited. A tail runs through the same vector
// code on a padded copy, so an element's result does not depend on its position in a vector.
template <class Rule, class Scalars>
HWY_INLINE void for_each_vector(const ChunkOperands chunk, const Scalars scalars) {
  if (chunk.narrow != nullptr) return step_narrow_moments<Rule>(chunk, scalars);
  const Index lanes = static_cast<Index>(hn::Lanes(Floats()));
  Index i = 0;
  for (; i + lanes <= chunk.length; i += lanes) {
    prefetch_slots<Rule>(chunk, i);
    step_vector<Rule>(chunk, scalars, i);
  }
  if (i == chunk.length) return;
  constexpr bool kUsed[] = {true, true, Rule::kMomentum, Rule::kSecondMoment, Rule::kExtra};
  float* const slots[] = {chunk.param, chunk.grad, chunk.momentum, chunk.second_moment,
                          chunk.extra};
  HWY_ALIGN float padded[5][hn::MaxLanes(Floats())] = {};
  for (int s = 0; s < 5; ++s) {
    for (Index j = i; kUsed[s] && j < chunk.length; ++j) padded[s][j - i] = slots[s][j];
  }
  ChunkOperands tail{padded[0], padded[1], padded[2], padded[3], padded[4], lanes};
  tail.grad_limit = chunk.grad_limit;
  step_vector<Rule>(tail, scalars, 0);
  for (int s = 0; s < 5; ++s) {
    if (s == 1) continue;  // gradients are only read
    for (Index j = i; kUsed[s] && j < chunk.length; ++j) slots[s][j] = padded[s][j - i];
  }
}

// Like for_each_vector() as a plain loop with all arithmetic in double. Not for narrow moments.
template <class Rule, class Scalars>
HWY_INLINE void for_each_element(const ChunkOperands& chunk, const Scalars& scalars) {
  for (Index i = 0; i < chunk.length; ++i) {
    double p = chunk.param[i], m = 0, v = 0, x = 0;
    double g = static_cast<double>(scalars.grad_scale) * chunk.grad[i];
    if (std::abs(g) > chunk.grad_limit) g = std::copysign(chunk.grad_limit, g);
    if constexpr (Rule::kMomentum) m = chunk.momentum[i];
    if constexpr (Rule::kSecondMoment) v = chunk.second_moment[i];
    if constexpr (Rule::kExtra) x = chunk.extra[i];
    Rule::apply(scalars, p, g, m, v, x);
    chunk.param[i] = static_cast<float>(p);
    if constexpr (Rule::kMomentum) chunk.momentum[i] = static_cast<float>(m);
    if constexpr (Rule::kSecondMoment) chunk.second_moment[i] = static_cast<float>(v);
    if constexpr (Rule::kExtra) chunk.extra[i] = static_cast<float>(x);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
