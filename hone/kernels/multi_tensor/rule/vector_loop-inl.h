// SPDX-License-Identifier: Apache-2.0
// Runs one rule over a chunk, vector by vector, compiled once per Highway target.
#if defined(HONE_VECTOR_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_VECTOR_LOOP_INL_H_
#undef HONE_VECTOR_LOOP_INL_H_
#else
#define HONE_VECTOR_LOOP_INL_H_
#endif

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

// The vector at element i.
template <class Rule>
HWY_INLINE void step_vector(const ChunkOperands& chunk, const Rule& rule, Index i) {
  const Floats d;
  FloatVec m = hn::Zero(d), v = m;
  if constexpr (Rule::kMomentum) m = hn::LoadU(d, chunk.momentum + i);
  if constexpr (Rule::kSecondMoment) v = hn::LoadU(d, chunk.second_moment + i);
  step_moments(chunk, rule, i, m, v);
  if constexpr (Rule::kMomentum) hn::StoreU(m, d, chunk.momentum + i);
  if constexpr (Rule::kSecondMoment) hn::StoreU(v, d, chunk.second_moment + i);
}

// Rule: its scalars `s` with grad_scale, `kMomentum, kSecondMoment, kExtra` for the slots it has,
// and `apply(p, g, m, v, x)`, which steps one vector of each slot; g is scaled. A tail runs through
// the same vector code on a padded copy: an element's result does not depend on where in a vector
// it lies. (Scalars stay floats in the rule, because vectors of scalable instruction sets cannot be
// members.)
template <class Rule>
HWY_INLINE void for_each_vector(const ChunkOperands chunk, Rule rule) {
  if (chunk.narrow != nullptr) return step_narrow_moments(chunk, rule);
  const Index lanes = static_cast<Index>(hn::Lanes(Floats()));
  Index i = 0;
  for (; i + lanes <= chunk.length; i += lanes) {
    prefetch_slots<Rule>(chunk, i);
    step_vector(chunk, rule, i);
  }
  if (i == chunk.length) return;
  constexpr bool kUsed[] = {true, true, Rule::kMomentum, Rule::kSecondMoment, Rule::kExtra};
  float* const slots[] = {chunk.param, chunk.grad, chunk.momentum, chunk.second_moment,
                          chunk.extra};
  HWY_ALIGN float padded[5][hn::MaxLanes(Floats())] = {};
  for (int s = 0; s < 5; ++s) {
    for (Index j = i; kUsed[s] && j < chunk.length; ++j) padded[s][j - i] = slots[s][j];
  }
  step_vector({padded[0], padded[1], padded[2], padded[3], padded[4], lanes}, rule, 0);
  for (int s = 0; s < 5; ++s) {
    if (s == 1) continue;  // gradients are only read
    for (Index j = i; kUsed[s] && j < chunk.length; ++j) slots[s][j] = padded[s][j - i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
