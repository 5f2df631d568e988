// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/element_pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/schedule/element_pass.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/schedule/element_pass-inl.h"

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {
namespace {

HWY_EXPORT(axpby_vectors);
HWY_EXPORT(multiply_vectors);
HWY_EXPORT(clamp_vectors);
HWY_EXPORT(scale_vectors);
HWY_EXPORT(average_vectors);

}  // namespace

ElementPass choose_element_pass() {
  if (wants_reference()) return element_pass_ref();
  return {HWY_DYNAMIC_DISPATCH(axpby_vectors), HWY_DYNAMIC_DISPATCH(multiply_vectors),
          HWY_DYNAMIC_DISPATCH(clamp_vectors), HWY_DYNAMIC_DISPATCH(scale_vectors),
          HWY_DYNAMIC_DISPATCH(average_vectors)};
}

}  // namespace hone::kernels
#endif
