// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/cross_entropy.h"

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/norm/cross_entropy.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/norm/cross_entropy-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(cross_entropy_rows);

void cross_entropy(const CrossEntropyArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("cross_entropy", {"rows", args.rows}, {"classes", args.classes});
  HONE_CHECK(args.rows >= 0, "cross_entropy", "rows >= 0", args.rows);
  HONE_CHECK(args.classes > 0, "cross_entropy", "classes > 0", args.classes);
  for (Index row = 0; row < args.rows; ++row) {
    HONE_CHECK(args.targets[row] < args.classes, "cross_entropy",
               concat("targets below ", args.classes), args.targets[row]);
  }
  executor.parallel_for(args.rows, rows_per_chunk(args.classes), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(cross_entropy_rows)(args, begin, end);
  });
}

}  // namespace hone::kernels
#endif
