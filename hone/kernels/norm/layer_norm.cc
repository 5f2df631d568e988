// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/layer_norm.h"

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/norm/layer_norm.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/norm/layer_norm-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(layer_norm_rows);

void layer_norm(const LayerNormArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("layer_norm", {"rows", args.rows}, {"cols", args.cols});
  HONE_CHECK(args.rows >= 0 && args.cols >= 0, "layer_norm", "sizes >= 0",
             concat("[", args.rows, ", ", args.cols, "]"));
  HONE_CHECK(args.x_stride >= args.cols && args.y_stride >= args.cols, "layer_norm",
             concat("strides of at least ", args.cols, " columns"),
             concat(args.x_stride, " and ", args.y_stride));
  HONE_CHECK(args.epsilon > 0, "layer_norm", "epsilon > 0", args.epsilon);
  if (args.cols == 0) return;
  executor.parallel_for(args.rows, rows_per_chunk(args.cols), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(layer_norm_rows)(args, begin, end);
  });
}

}  // namespace hone::kernels
#endif
