// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/activation/soft_cap.h"

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/activation/soft_cap.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/activation/soft_cap-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(soft_cap_range);

void soft_cap(std::span<float> x, float cap, Executor& executor) {
  HONE_TRACE_ZONE("soft_cap", {"values", x.size()});
  HONE_CHECK(cap > 0, "soft_cap", "a cap above 0", cap);
  executor.parallel_for(std::ssize(x), rows_per_chunk(1), [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(soft_cap_range)(x.data(), begin, end, cap);
  });
}

}  // namespace hone::kernels
#endif
