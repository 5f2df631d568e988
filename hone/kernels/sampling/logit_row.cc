// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sampling/logit_row.h"

#include "hone/core/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/sampling/logit_row.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/sampling/logit_row-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(logit_range_row);
HWY_EXPORT(group_maxima_row);
HWY_EXPORT(first_at_least_row);
HWY_EXPORT(collect_at_least_row);
HWY_EXPORT(softmax_masses_row);

LogitRange logit_range(const float* logits, Index count) {
  return HWY_DYNAMIC_DISPATCH(logit_range_row)(logits, count);
}

void group_maxima(const float* logits, Index count, float* maxima) {
  HWY_DYNAMIC_DISPATCH(group_maxima_row)(logits, count, maxima);
}

Index first_at_least(const float* logits, Index count, float bound) {
  return HWY_DYNAMIC_DISPATCH(first_at_least_row)(logits, count, bound);
}

Index collect_at_least(const float* logits, Index count, float bound, std::int32_t* ids) {
  return HWY_DYNAMIC_DISPATCH(collect_at_least_row)(logits, count, bound, ids);
}

std::uint64_t softmax_masses(const float* logits, Index count, float highest, float temperature,
                             std::uint64_t* masses) {
  HONE_CHECK(count >= 0 && count <= Index{1} << 20, "softmax_masses", "0 to 2^20 logits", count);
  HONE_CHECK(temperature > 0, "softmax_masses", "a positive temperature", temperature);
  return HWY_DYNAMIC_DISPATCH(softmax_masses_row)(logits, count, highest, temperature, masses);
}

}  // namespace hone::kernels
#endif
