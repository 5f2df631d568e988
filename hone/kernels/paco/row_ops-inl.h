// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target.
#if defined(HONE_KERNELS_BATCHED_ROW_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_BATCHED_ROW_OPS_INL_H_
#undef HONE_KERNELS_BATCHED_ROW_OPS_INL_H_
#else
#define HONE_KERNELS_BATCHED_ROW_OPS_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/core/index.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE double dot_rows(const double* a, const double* b, Index n) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  Index i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), even);
    odd = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), odd);
  }
  for (; i + lanes <= n; i += lanes)
    even = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), even);
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// y += scale x.
HWY_INLINE void add_scaled_row(double scale, const double* HWY_RESTRICT x, double* HWY_RESTRICT y,
                               Index n) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto scales = hn::Set(d, scale);
  Index i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::MulAdd(scales, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < n; ++i) y[i] += scale * x[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
