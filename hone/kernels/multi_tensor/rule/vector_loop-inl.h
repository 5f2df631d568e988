// SPDX-License-Identifier: Apache-2.0
// Runs one rule over a chunk, vector by vector, compiled once per Highway target.
#if defined(HONE_VECTOR_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_VECTOR_LOOP_INL_H_
#undef HONE_VECTOR_LOOP_INL_H_
#else
#define HONE_VECTOR_LOOP_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "hone/kernels/multi_tensor/chunk_operands.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

// Leaves the scaled gradient (without the sign that maximising put on it), zero, or what was there.
template <GradWriteBack kGrad>
HWY_INLINE void write_back(FloatVec scaled, float grad_scale, float* to) {
  const Floats d;
  if constexpr (kGrad == GradWriteBack::Unscaled) {
    hn::StoreU(hn::Mul(scaled, hn::Set(d, grad_scale < 0 ? -1.0f : 1.0f)), d, to);
  }
  if constexpr (kGrad == GradWriteBack::Zero) hn::StoreU(hn::Zero(d), d, to);
}

constexpr Index kPrefetch = 512;

template <class Rule>
HWY_INLINE void prefetch_slots(const ChunkOperands& chunk, Index i) {
  hwy::Prefetch(chunk.param + i);
  hwy::Prefetch(chunk.grad + i);
  if constexpr (Rule::kMomentum) hwy::Prefetch(chunk.momentum + i);
  if constexpr (Rule::kSecondMoment) hwy::Prefetch(chunk.second_moment + i);
}

// Rule: `void step(chunk, i)` for the vector at element i, and `kMomentum, kSecondMoment, kExtra,
// kWritesGrad` for the slots it has. A tail runs through the same vector code on a padded copy: an
// element's result does not depend on where in a vector it lies. (Scalars stay floats in the rule,
// because vectors of scalable instruction sets cannot be members.)
template <class Rule>
HWY_INLINE void for_each_vector(const ChunkOperands chunk, const Rule rule) {
  const Index lanes = static_cast<Index>(hn::Lanes(Floats()));
  Index i = 0;
  for (; i + lanes <= chunk.length; i += lanes) {
    prefetch_slots<Rule>(chunk, i + kPrefetch);
    rule.step(chunk, i);
  }
  if (i == chunk.length) return;
  constexpr bool kRead[] = {true, true, Rule::kMomentum, Rule::kSecondMoment, Rule::kExtra};
  constexpr bool kWritten[] = {true, Rule::kWritesGrad, Rule::kMomentum, Rule::kSecondMoment,
                               Rule::kExtra};
  float* const slots[] = {chunk.param, chunk.grad, chunk.momentum, chunk.second_moment,
                          chunk.extra};
  HWY_ALIGN float padded[5][hn::MaxLanes(Floats())] = {};
  for (int s = 0; s < 5; ++s) {
    for (Index j = i; kRead[s] && j < chunk.length; ++j) padded[s][j - i] = slots[s][j];
  }
  rule.step({padded[0], padded[1], padded[2], padded[3], padded[4], lanes}, 0);
  for (int s = 0; s < 5; ++s) {
    for (Index j = i; kWritten[s] && j < chunk.length; ++j) slots[s][j] = padded[s][j - i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
