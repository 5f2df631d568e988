// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/codec/loss_scale.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/codec/loss_scale.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/codec/loss_scale-inl.h"

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {

HWY_EXPORT(unscale);
HWY_EXPORT(round_f16);
HWY_EXPORT(measure);

double unscale_chunk(float* grad, Index length, float inv_scale) {
  if (wants_reference()) return unscale_chunk_reference(grad, length, inv_scale);
  return HWY_DYNAMIC_DISPATCH(unscale)(grad, length, inv_scale);
}

void round_through_f16(const float* from, float* to, Index length) {
  if (wants_reference()) return round_through_f16_reference(from, to, length);
  HWY_DYNAMIC_DISPATCH(round_f16)(from, to, length);
}

void measure_f16(const float* values, Index length, float factor, float scale,
                 F16Statistics& into) {
  if (wants_reference()) return measure_f16_reference(values, length, factor, scale, into);
  // Slots of 32 bits count one part each.
  constexpr Index kPart = Index{1} << 30;
  for (Index i = 0; i < length; i += kPart) {
    HWY_DYNAMIC_DISPATCH(measure)(values + i, std::min(kPart, length - i), factor, scale, into);
  }
}

}  // namespace hone::kernels
#endif
