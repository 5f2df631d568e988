// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/rms_norm.h"

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/norm/rms_norm.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/norm/rms_norm-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(rms_norm_rows);

void rms_norm(const RmsNormArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("rms_norm", {"rows", args.rows}, {"cols", args.cols});
  HONE_CHECK(args.rows >= 0 && args.cols >= 0, "rms_norm", "sizes >= 0",
             concat("[", args.rows, ", ", args.cols, "]"));
  HONE_CHECK(args.x_stride >= args.cols && args.y_stride >= args.cols, "rms_norm",
             concat("strides of at least ", args.cols, " columns"),
             concat(args.x_stride, " and ", args.y_stride));
  HONE_CHECK(args.epsilon > 0, "rms_norm", "epsilon > 0", args.epsilon);
  HONE_CHECK(args.cols > 0 || args.inverse_rms == nullptr, "rms_norm", "cols > 0 for inverse_rms",
             args.cols);
  if (args.cols == 0) return;
  executor.parallel_for(args.rows, rows_per_chunk(args.cols), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(rms_norm_rows)(args, begin, end);
  });
}

}  // namespace hone::kernels
#endif
