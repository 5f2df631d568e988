// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see rms_norm_grad.cc.
#if defined(HONE_KERNELS_NORM_RMS_NORM_GRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_RMS_NORM_GRAD_INL_H_
#undef HONE_KERNELS_NORM_RMS_NORM_GRAD_INL_H_
#else
#define HONE_KERNELS_NORM_RMS_NORM_GRAD_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/kernels/norm/rms_norm_grad.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Adds g x r of these rows to weight_sum [cols].
void rms_norm_grad_rows(const RmsNormGradArgs& args, Index begin, Index end,
                        float* HWY_RESTRICT weight_sum) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const Index whole = args.cols - args.cols % lanes;
  for (Index row = begin; row < end; ++row) {
    const Index at = row * args.cols;
    const float* HWY_RESTRICT x = args.x + at;
    const float* HWY_RESTRICT g = args.grad_y + at;
    const float* carried = args.grad_sum == nullptr ? nullptr : args.grad_sum + at;
    float* out = args.grad_x + at;
    const float r = args.inverse_rms[row];
    const auto rs = hn::Set(d, r);
    auto products = hn::Zero(d);
    float tail = 0;
    for (Index i = 0; i < whole; i += lanes) {
      const auto gx = hn::Mul(hn::LoadU(d, g + i), hn::LoadU(d, x + i));
      products = hn::MulAdd(gx, hn::LoadU(d, args.weight + i), products);
      hn::StoreU(hn::MulAdd(gx, rs, hn::LoadU(d, weight_sum + i)), d, weight_sum + i);
    }
    for (Index i = whole; i < args.cols; ++i) {
      tail += g[i] * x[i] * args.weight[i];
      weight_sum[i] += g[i] * x[i] * r;
    }
    const float dot = hn::GetLane(hn::SumOfLanes(d, products)) + tail;
    const float back = -r * r * r * dot / static_cast<float>(args.cols);
    const auto backs = hn::Set(d, back);
    for (Index i = 0; i < whole; i += lanes) {
      const auto gw = hn::Mul(hn::LoadU(d, g + i), hn::LoadU(d, args.weight + i));
      const auto base = carried == nullptr ? hn::Zero(d) : hn::LoadU(d, carried + i);
      const auto v = hn::MulAdd(gw, rs, hn::MulAdd(hn::LoadU(d, x + i), backs, base));
      hn::StoreU(v, d, out + i);
    }
    for (Index i = whole; i < args.cols; ++i) {
      const float base = carried == nullptr ? 0.0f : carried[i];
      out[i] = g[i] * args.weight[i] * r + (x[i] * back + base);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
