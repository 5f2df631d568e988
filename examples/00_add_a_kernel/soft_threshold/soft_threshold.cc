// SPDX-License-Identifier: Apache-2.0
#include "soft_threshold/soft_threshold.h"

#include <hone/core/check.h>
#include <hone/core/machine/trace.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "soft_threshold/soft_threshold.cc"
#include <hwy/foreach_target.h>

#include "soft_threshold/soft_threshold-inl.h"

#if HWY_ONCE
namespace example {

HWY_EXPORT(threshold_all);

void soft_threshold(const SoftThresholdArgs& args) {
  HONE_TRACE_ZONE("soft_threshold");
  HONE_CHECK(args.count >= 0, "soft_threshold", "count >= 0", args.count);
  HONE_CHECK(args.threshold >= 0, "soft_threshold", "threshold >= 0", args.threshold);
  HWY_DYNAMIC_DISPATCH(threshold_all)(args);
}

}  // namespace example
#endif
