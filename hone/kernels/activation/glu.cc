// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/activation/glu.h"

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/activation/glu.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/activation/glu-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(glu_rows);
HWY_EXPORT(glu_grad_rows);

namespace {

void check_sizes(const char* op, Index rows, Index cols) {
  HONE_CHECK(rows >= 0 && cols >= 0, op, "sizes >= 0", concat("[", rows, ", ", cols, "]"));
}

}  // namespace

void glu(const GluArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("glu", {"rows", args.rows}, {"cols", args.cols});
  check_sizes("glu", args.rows, args.cols);
  executor.parallel_for(args.rows, rows_per_chunk(2 * args.cols), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(glu_rows)(args, begin, end);
  });
}

void glu_grad(const GluGradArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("glu_grad", {"rows", args.rows}, {"cols", args.cols});
  check_sizes("glu_grad", args.rows, args.cols);
  executor.parallel_for(args.rows, rows_per_chunk(2 * args.cols), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(glu_grad_rows)(args, begin, end);
  });
}

}  // namespace hone::kernels
#endif
