// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/tam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/tam.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/rule_kernel-inl.h"

HONE_RULE_KERNEL(tam, TAMScalars, TAMRule);
HONE_RULE_KERNEL(adatam, TAMScalars, AdaTAMRule);

#if HWY_ONCE
namespace hone::kernels {

UpdateTAMChunk choose_tam_update(bool adaptive) {
  return adaptive ? choose_adatam() : choose_tam();
}

}  // namespace hone::kernels
#endif
