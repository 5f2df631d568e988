// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/log_sum_exp.h"

#include "hone/core/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/norm/log_sum_exp.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/norm/log_sum_exp-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(log_sum_exp_row);

double log_sum_exp(const float* x, Index cols) {
  HONE_CHECK(cols >= 0, "log_sum_exp", "cols >= 0", cols);
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_row)(x, cols);
}

}  // namespace hone::kernels
#endif
