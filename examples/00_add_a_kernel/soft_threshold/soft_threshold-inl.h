// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see soft_threshold.cc.
#if defined(EXAMPLE_SOFT_THRESHOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EXAMPLE_SOFT_THRESHOLD_INL_H_
#undef EXAMPLE_SOFT_THRESHOLD_INL_H_
#else
#define EXAMPLE_SOFT_THRESHOLD_INL_H_
#endif

#include <hwy/highway.h>

#include "soft_threshold/soft_threshold.h"

HWY_BEFORE_NAMESPACE();
namespace example {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void threshold_all(const SoftThresholdArgs& args) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto shrink = [&](auto tag, Index i) HWY_ATTR {
    const auto x = hn::LoadU(tag, args.x + i);
    const auto rest = hn::Sub(hn::Abs(x), hn::Set(tag, args.threshold));
    // Not Max: that would lose NaN on some targets.
    const auto kept = hn::IfThenZeroElse(hn::Lt(rest, hn::Zero(tag)), rest);
    hn::StoreU(hn::CopySignToAbs(kept, x), tag, args.y + i);
  };
  Index i = 0;
  for (; i + lanes <= args.count; i += lanes) shrink(d, i);
  for (; i < args.count; ++i) shrink(one, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace example
HWY_AFTER_NAMESPACE();

#endif
