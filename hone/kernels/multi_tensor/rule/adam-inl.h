// SPDX-License-Identifier: Apache-2.0
// Vector code of adam.h, compiled once per Highway target.
#if defined(HONE_ADAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_ADAM_INL_H_
#undef HONE_ADAM_INL_H_
#else
#define HONE_ADAM_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// Averages move by their share of the difference: m += (1 - β)(g - m). In this form the rounding of
// β to fp32 shifts neither the fixed point nor the bias correction, as β m + (1 - β) g does.
template <bool kAmsgrad, GradWriteBack kGrad>
struct AdamRule {
  static constexpr bool kMomentum = true, kSecondMoment = true, kExtra = kAmsgrad;
  static constexpr bool kWritesGrad = kGrad != GradWriteBack::None;
  AdamScalars s;

  HWY_INLINE void step(const ChunkOperands& chunk, Index i) const {
    const Floats d;
    const FloatVec p = hn::LoadU(d, chunk.param + i);
    const FloatVec m = hn::LoadU(d, chunk.momentum + i);
    const FloatVec v = hn::LoadU(d, chunk.second_moment + i);
    const FloatVec scaled = hn::Mul(hn::LoadU(d, chunk.grad + i), hn::Set(d, s.grad_scale));
    const FloatVec g = hn::MulAdd(hn::Set(d, s.l2), p, scaled);
    const FloatVec mean = hn::MulAdd(hn::Set(d, s.mean_share), hn::Sub(g, m), m);
    const FloatVec square = hn::MulAdd(hn::Set(d, s.square_share), hn::MulSub(g, g, v), v);
    FloatVec denominator = square;
    if constexpr (kAmsgrad) {
      denominator = hn::Max(square, hn::LoadU(d, chunk.extra + i));
      hn::StoreU(denominator, d, chunk.extra + i);
    }
    denominator =
        hn::MulAdd(hn::Sqrt(denominator), hn::Set(d, s.inverse_root_correction), hn::Set(d, s.eps));
    const FloatVec update = hn::Div(hn::Mul(mean, hn::Set(d, s.step_size)), denominator);
    hn::StoreU(hn::MulSub(p, hn::Set(d, s.keep), update), d, chunk.param + i);
    hn::StoreU(mean, d, chunk.momentum + i);
    hn::StoreU(square, d, chunk.second_moment + i);
    write_back<kGrad>(scaled, s.grad_scale, chunk.grad + i);
  }
};

template <bool kAmsgrad, GradWriteBack kGrad>
void update_adam(const ChunkOperands& chunk, const AdamScalars& scalars) {
  for_each_vector(chunk, AdamRule<kAmsgrad, kGrad>{scalars});
}

// HWY_EXPORT takes plain names.
void adam_keep(const ChunkOperands& c, const AdamScalars& s) {
  update_adam<false, GradWriteBack::None>(c, s);
}
void adam_unscaled(const ChunkOperands& c, const AdamScalars& s) {
  update_adam<false, GradWriteBack::Unscaled>(c, s);
}
void adam_zero(const ChunkOperands& c, const AdamScalars& s) {
  update_adam<false, GradWriteBack::Zero>(c, s);
}
void amsgrad_keep(const ChunkOperands& c, const AdamScalars& s) {
  update_adam<true, GradWriteBack::None>(c, s);
}
void amsgrad_unscaled(const ChunkOperands& c, const AdamScalars& s) {
  update_adam<true, GradWriteBack::Unscaled>(c, s);
}
void amsgrad_zero(const ChunkOperands& c, const AdamScalars& s) {
  update_adam<true, GradWriteBack::Zero>(c, s);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
