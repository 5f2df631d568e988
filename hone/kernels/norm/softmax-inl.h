// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see softmax.cc.
#if defined(HONE_KERNELS_NORM_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_SOFTMAX_INL_H_
#undef HONE_KERNELS_NORM_SOFTMAX_INL_H_
#else
#define HONE_KERNELS_NORM_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/norm/exp_sum-inl.h"
#include "hone/kernels/norm/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

void softmax_rows(const SoftmaxArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.stride;
    float* y = args.y + row * args.stride;
    bool has_nan = false;
    const float highest = max_of_row(x, args.cols, has_nan);
    if (has_nan) {  // hn::Exp would turn it into 0
      std::fill(y, y + args.cols, std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    if (std::isinf(highest) && highest < 0) {
      std::fill(y, y + args.cols, 0.0f);
      continue;
    }
    scale_in_place(y, args.cols, 1.0f / exp_and_sum(x, highest, args.cols, y));
  }
}

double log_sum_exp_row(const float* x, Index cols) {
  bool has_nan = false;
  const float highest = max_of_row(x, cols, has_nan);
  if (has_nan) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(highest)) return highest;
  return highest + std::log(exp_and_sum_in_parts(x, highest, cols, nullptr));
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
