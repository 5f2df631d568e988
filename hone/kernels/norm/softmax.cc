// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/softmax.h"

#include "hone/core/check.h"
#include "hone/core/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/norm/softmax.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/norm/softmax-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(softmax_rows);
HWY_EXPORT(log_sum_exp_row);

void softmax(const SoftmaxArgs& args) {
  HONE_TRACE_ZONE("softmax", {"rows", args.rows}, {"cols", args.cols});
  HONE_CHECK(args.rows >= 0 && args.cols >= 0, "softmax", "sizes >= 0",
             concat("[", args.rows, ", ", args.cols, "]"));
  HONE_CHECK(args.stride >= args.cols, "softmax", concat("stride of at least ", args.cols),
             args.stride);
  HWY_DYNAMIC_DISPATCH(softmax_rows)(args);
}

double log_sum_exp(const float* x, Index cols) {
  HONE_CHECK(cols >= 0, "log_sum_exp", "cols >= 0", cols);
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_row)(x, cols);
}

}  // namespace hone::kernels
#endif
