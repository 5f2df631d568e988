// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see log_sum_exp.cc.
#if defined(HONE_KERNELS_NORM_LOG_SUM_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_LOG_SUM_EXP_INL_H_
#undef HONE_KERNELS_NORM_LOG_SUM_EXP_INL_H_
#else
#define HONE_KERNELS_NORM_LOG_SUM_EXP_INL_H_
#endif

#include <cmath>
#include <limits>

#include "hone/kernels/norm/exp_sum-inl.h"
#include "hone/kernels/norm/log_sum_exp.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

double log_sum_exp_row(const float* x, Index cols) {
  bool has_nan = false;
  const float highest = max_of_row(x, cols, has_nan);
  if (has_nan) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(highest)) return highest;
  return highest + std::log(sum_of_exp(x, highest, cols));
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
