// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see cross_entropy.cc.
#if defined(HONE_KERNELS_NORM_CROSS_ENTROPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_CROSS_ENTROPY_INL_H_
#undef HONE_KERNELS_NORM_CROSS_ENTROPY_INL_H_
#else
#define HONE_KERNELS_NORM_CROSS_ENTROPY_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/norm/cross_entropy.h"
#include "hone/kernels/norm/exp_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

void cross_entropy_rows(const CrossEntropyArgs& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    float* z = args.logits + row * args.classes;
    const std::int64_t target = args.targets[row];
    if (target < 0) {
      args.nats[row] = 0;
      if (args.want_grad) std::fill_n(z, args.classes, 0.0f);
      continue;
    }
    bool has_nan = false;
    const float highest = max_of_row(z, args.classes, has_nan), chosen = z[target];
    if (has_nan || !std::isfinite(highest)) {  // hn::Exp would turn a NaN into 0
      args.nats[row] = std::numeric_limits<double>::quiet_NaN();
      if (args.want_grad) std::fill_n(z, args.classes, std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const double sum = exp_and_sum_in_parts(z, highest, args.classes, args.want_grad ? z : nullptr);
    args.nats[row] = std::log(sum) + (static_cast<double>(highest) - static_cast<double>(chosen));
    if (args.want_grad) {
      scale_in_place(z, args.classes, static_cast<float>(1 / sum));
      z[target] -= 1;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
