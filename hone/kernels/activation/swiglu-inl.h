// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see swiglu.cc.
#if defined(HONE_KERNELS_ACTIVATION_SWIGLU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ACTIVATION_SWIGLU_INL_H_
#undef HONE_KERNELS_ACTIVATION_SWIGLU_INL_H_
#else
#define HONE_KERNELS_ACTIVATION_SWIGLU_INL_H_
#endif

#include "hone/kernels/activation/silu-inl.h"
#include "hone/kernels/activation/swiglu.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// Processes elements [begin, …) of a row in steps of the tag's lanes and returns where it stopped.
// A one-lane tag finishes the rest with the same operations.
template <class D>
HWY_INLINE Index gate_row(D d, const SwiGluArgs& args, Index row, Index begin) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const float* gate = args.gate_up + row * 2 * args.cols;
  const float* up = gate + args.cols;
  float* out = args.out + row * args.cols;
  Index i = begin;
  for (; i + lanes <= args.cols; i += lanes) {
    hn::StoreU(hn::Mul(silu(d, hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, out + i);
  }
  return i;
}

void swiglu_rows(const SwiGluArgs& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    const Index done = gate_row(hn::ScalableTag<float>(), args, row, 0);
    gate_row(hn::CappedTag<float, 1>(), args, row, done);
  }
}

// d silu / dz = s (1 + z (1 - s)) with the sigmoid s.
template <class D>
HWY_INLINE Index gate_row_grad(D d, const SwiGluGradArgs& args, Index row, Index begin) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  const float* gate = args.gate_up + row * 2 * args.cols;
  const float* g = args.grad_out + row * args.cols;
  float* grad_gate = args.grad_gate_up + row * 2 * args.cols;
  Index i = begin;
  for (; i + lanes <= args.cols; i += lanes) {
    const auto z = hn::LoadU(d, gate + i), u = hn::LoadU(d, gate + args.cols + i);
    const auto gi = hn::LoadU(d, g + i), s = times_sigmoid(d, one, z);
    const auto slope = hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one));
    hn::StoreU(hn::Mul(gi, hn::Mul(z, s)), d, grad_gate + args.cols + i);
    hn::StoreU(hn::Mul(gi, hn::Mul(u, slope)), d, grad_gate + i);
  }
  return i;
}

void swiglu_grad_rows(const SwiGluGradArgs& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    const Index done = gate_row_grad(hn::ScalableTag<float>(), args, row, 0);
    gate_row_grad(hn::CappedTag<float, 1>(), args, row, done);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
