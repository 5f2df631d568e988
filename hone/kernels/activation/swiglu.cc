// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/activation/swiglu.h"

#include "hone/core/check.h"
#include "hone/core/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/activation/swiglu.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/activation/swiglu-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(swiglu_rows);
HWY_EXPORT(swiglu_grad_rows);

void swiglu(const SwiGluArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("swiglu", {"rows", args.rows}, {"cols", args.cols});
  HONE_CHECK(args.rows >= 0 && args.cols >= 0, "swiglu", "sizes >= 0",
             concat("[", args.rows, ", ", args.cols, "]"));
  executor.parallel_for(args.rows, rows_per_chunk(2 * args.cols), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(swiglu_rows)(args, begin, end);
  });
}

void swiglu_grad(const SwiGluGradArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("swiglu_grad", {"rows", args.rows}, {"cols", args.cols});
  HONE_CHECK(args.rows >= 0 && args.cols >= 0, "swiglu_grad", "sizes >= 0",
             concat("[", args.rows, ", ", args.cols, "]"));
  executor.parallel_for(args.rows, rows_per_chunk(2 * args.cols), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(swiglu_grad_rows)(args, begin, end);
  });
}

}  // namespace hone::kernels
#endif
