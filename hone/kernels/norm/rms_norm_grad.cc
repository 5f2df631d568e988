// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/norm/rms_norm_grad.h"

#include <algorithm>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/norm/rms_norm_grad.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/norm/rms_norm_grad-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(rms_norm_grad_rows);

// Every chunk has its own sum for grad_weight; they are added in order.
void rms_norm_grad(const RmsNormGradArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("rms_norm_grad", {"rows", args.rows}, {"cols", args.cols});
  HONE_CHECK(args.rows >= 0, "rms_norm_grad", "rows >= 0", args.rows);
  HONE_CHECK(args.cols > 0, "rms_norm_grad", "cols > 0", args.cols);
  const Index grain = rows_per_chunk(args.cols), chunks = ceil_div(args.rows, grain);
  std::vector<float> partial(static_cast<std::size_t>(chunks * args.cols));
  executor.parallel_for(args.rows, grain, [&](Index begin, Index end, int) {
    float* weight_sum = partial.data() + begin / grain * args.cols;
    HWY_DYNAMIC_DISPATCH(rms_norm_grad_rows)(args, begin, end, weight_sum);
  });
  std::fill_n(args.grad_weight, args.cols, 0.0f);
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    const float* from = partial.data() + chunk * args.cols;
    for (Index i = 0; i < args.cols; ++i) args.grad_weight[i] += from[i];
  }
}

}  // namespace hone::kernels
#endif
