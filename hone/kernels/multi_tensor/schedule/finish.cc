// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/finish.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/schedule/finish.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "hone/kernels/multi_tensor/limit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void scale_vectors(float* values, Index length, float factor) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= length; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  }
  for (; i < length; ++i) values[i] *= factor;
}

template <class D>
HWY_INLINE void limit_vector(D d, float limit, float* values) {
  hn::StoreU(limit_magnitude(d, hn::LoadU(d, values), limit), d, values);
}

void limit_vectors(float* values, Index length, float limit) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= length; i += lanes) limit_vector(d, limit, values + i);
  for (; i < length; ++i) limit_vector(hn::CappedTag<float, 1>(), limit, values + i);
}

void average_vectors(const float* values, Index length, float share, float* average) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= length; i += lanes) {
    const auto kept = hn::LoadU(d, average + i);
    const auto step = hn::Sub(hn::LoadU(d, values + i), kept);
    hn::StoreU(hn::MulAdd(hn::Set(d, share), step, kept), d, average + i);
  }
  for (; i < length; ++i) {
    const auto kept = hn::LoadU(one, average + i);
    const auto step = hn::Sub(hn::LoadU(one, values + i), kept);
    hn::StoreU(hn::MulAdd(hn::Set(one, share), step, kept), one, average + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {
namespace {
HWY_EXPORT(scale_vectors);
HWY_EXPORT(limit_vectors);
HWY_EXPORT(average_vectors);
}  // namespace

FinishPass choose_finish() {
  if (wants_reference()) return {scale_chunk_ref, limit_chunk_ref, average_chunk_ref};
  return {HWY_DYNAMIC_DISPATCH(scale_vectors), HWY_DYNAMIC_DISPATCH(limit_vectors),
          HWY_DYNAMIC_DISPATCH(average_vectors)};
}

}  // namespace hone::kernels
#endif
