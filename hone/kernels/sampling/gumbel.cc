// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sampling/gumbel.h"

#include <cmath>

#include "hone/core/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/sampling/gumbel.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/sampling/gumbel-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(gumbel_argmax_row);

Index gumbel_argmax(const GumbelArgmaxArgs& args) {
  HONE_CHECK(args.count >= 0 && args.count <= Index{1} << 31, "gumbel_argmax", "0 to 2^31 logits",
             args.count);
  HONE_CHECK(std::isfinite(args.highest), "gumbel_argmax", "a finite largest logit", args.highest);
  HONE_CHECK(args.temperature > 0 && std::isfinite(args.temperature), "gumbel_argmax",
             "a positive finite temperature", args.temperature);
  return HWY_DYNAMIC_DISPATCH(gumbel_argmax_row)(args);
}

}  // namespace hone::kernels
#endif
