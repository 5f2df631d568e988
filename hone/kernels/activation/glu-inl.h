// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see glu.cc.
#if defined(HONE_KERNELS_ACTIVATION_GLU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ACTIVATION_GLU_INL_H_
#undef HONE_KERNELS_ACTIVATION_GLU_INL_H_
#else
#define HONE_KERNELS_ACTIVATION_GLU_INL_H_
#endif

#include "hone/kernels/activation/gelu-inl.h"
#include "hone/kernels/activation/glu.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// Both activations are z s, where s is the sigmoid of t(z), so act' = s (1 + z t' (1 - s)). Each
// type defines inner = t and steep = z t'.
struct SiluInner {
  template <class D, class V>
  static HWY_INLINE V inner(D, V z) {
    return z;
  }
  template <class D, class V>
  static HWY_INLINE V steep(D, V z) {
    return z;
  }
};
struct GeluInner {
  template <class D, class V>
  static HWY_INLINE V inner(D d, V z) {
    return gelu_inner(d, z);
  }
  template <class D, class V>
  static HWY_INLINE V steep(D d, V z) {
    return gelu_inner_steep(d, z);
  }
};

// Processes elements [begin, …) of a row in steps of the tag's lanes and returns where it stopped.
// A one-lane tag finishes the rest with the same operations.
template <class Act, class D>
HWY_INLINE Index glu_row(D d, const GluArgs& args, Index row, Index begin) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const float* gate = args.gate_up + row * 2 * args.cols;
  const float* up = gate + args.cols;
  float* out = args.out + row * args.cols;
  Index i = begin;
  for (; i + lanes <= args.cols; i += lanes) {
    const auto z = hn::LoadU(d, gate + i);
    const auto activated = times_sigmoid(d, z, Act::inner(d, z));
    hn::StoreU(hn::Mul(activated, hn::LoadU(d, up + i)), d, out + i);
  }
  return i;
}

template <class Act, class D>
HWY_INLINE Index glu_row(D d, const GluGradArgs& args, Index row, Index begin) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  const float* gate = args.gate_up + row * 2 * args.cols;
  const float* g = args.grad_out + row * args.cols;
  float* grad_gate = args.grad_gate_up + row * 2 * args.cols;
  Index i = begin;
  for (; i + lanes <= args.cols; i += lanes) {
    const auto z = hn::LoadU(d, gate + i), u = hn::LoadU(d, gate + args.cols + i);
    const auto gi = hn::LoadU(d, g + i), s = times_sigmoid(d, one, Act::inner(d, z));
    const auto slope = hn::Mul(s, hn::MulAdd(Act::steep(d, z), hn::Sub(one, s), one));
    hn::StoreU(hn::Mul(gi, hn::Mul(z, s)), d, grad_gate + args.cols + i);
    hn::StoreU(hn::Mul(gi, hn::Mul(u, slope)), d, grad_gate + i);
  }
  return i;
}

template <class Act, class Args>
HWY_INLINE void glu_rows_of(const Args& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    const Index done = glu_row<Act>(hn::ScalableTag<float>(), args, row, 0);
    glu_row<Act>(hn::CappedTag<float, 1>(), args, row, done);
  }
}

template <class Args>
HWY_INLINE void choose_act(const Args& args, Index begin, Index end) {
  if (args.gate == Gate::Silu) return glu_rows_of<SiluInner>(args, begin, end);
  glu_rows_of<GeluInner>(args, begin, end);
}

void glu_rows(const GluArgs& args, Index begin, Index end) { choose_act(args, begin, end); }
void glu_grad_rows(const GluGradArgs& args, Index begin, Index end) {
  choose_act(args, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
