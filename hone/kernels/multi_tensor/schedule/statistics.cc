// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/statistics.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/schedule/statistics.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/schedule/statistics-inl.h"

#if HWY_ONCE
#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {
namespace {

HWY_EXPORT(gather_norm);
HWY_EXPORT(gather_torque);
HWY_EXPORT(gather_torque_with_decay);
HWY_EXPORT(gather_limited_torque);
HWY_EXPORT(gather_limited_torque_with_decay);

template <Statistics kKind>
void gather_plain(const ChunkOperands& chunk, double* sums) {
  gather_reference(kKind, chunk, sums);
}

}  // namespace

GatherChunk choose_gather(Statistics kind, bool limited) {
  const bool reference = wants_reference();
  switch (kind) {
    case Statistics::Norm:
      return reference ? gather_plain<Statistics::Norm> : HWY_DYNAMIC_DISPATCH(gather_norm);
    case Statistics::Torque:
      if (reference) return gather_plain<Statistics::Torque>;
      return limited ? HWY_DYNAMIC_DISPATCH(gather_limited_torque)
                     : HWY_DYNAMIC_DISPATCH(gather_torque);
    case Statistics::TorqueWithDecay:
      if (reference) return gather_plain<Statistics::TorqueWithDecay>;
      return limited ? HWY_DYNAMIC_DISPATCH(gather_limited_torque_with_decay)
                     : HWY_DYNAMIC_DISPATCH(gather_torque_with_decay);
    case Statistics::None:
      break;
  }
  fail(ErrorCategory::Internal, "multi_tensor statistics", "something to gather", "nothing");
}

}  // namespace hone::kernels
#endif
