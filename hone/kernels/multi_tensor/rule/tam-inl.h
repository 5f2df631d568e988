// SPDX-License-Identifier: Apache-2.0
// Vector code of tam.h, compiled once per Highway target.
#if defined(HONE_TAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_TAM_INL_H_
#undef HONE_TAM_INL_H_
#else
#define HONE_TAM_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/tam.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

template <bool kAdaptive, GradWriteBack kGrad>
struct TAMRule {
  static constexpr bool kMomentum = true, kSecondMoment = kAdaptive, kExtra = false;
  static constexpr bool kWritesGrad = kGrad != GradWriteBack::None;
  TAMScalars s;

  HWY_INLINE void step(const ChunkOperands& chunk, Index i) const {
    const Floats d;
    const FloatVec p = hn::LoadU(d, chunk.param + i);
    const FloatVec scaled = hn::Mul(hn::LoadU(d, chunk.grad + i), hn::Set(d, s.grad_scale));
    const FloatVec g = hn::MulAdd(hn::Set(d, s.l2), p, scaled);
    const FloatVec kept = hn::Mul(hn::LoadU(d, chunk.momentum + i), hn::Set(d, s.momentum_keep));
    const FloatVec m = hn::MulAdd(g, hn::Set(d, s.damping), kept);
    FloatVec update = hn::Mul(m, hn::Set(d, s.lr));
    if constexpr (kAdaptive) {
      const FloatVec v = hn::LoadU(d, chunk.second_moment + i);
      const FloatVec square = hn::MulAdd(hn::Set(d, s.square_share), hn::MulSub(g, g, v), v);
      update = hn::Div(update, hn::Add(hn::Sqrt(square), hn::Set(d, s.eps)));
      hn::StoreU(square, d, chunk.second_moment + i);
    }
    hn::StoreU(hn::MulSub(p, hn::Set(d, s.keep), update), d, chunk.param + i);
    hn::StoreU(m, d, chunk.momentum + i);
    write_back<kGrad>(scaled, s.grad_scale, chunk.grad + i);
  }
};

template <bool kAdaptive, GradWriteBack kGrad>
void update_tam(const ChunkOperands& chunk, const TAMScalars& scalars) {
  for_each_vector(chunk, TAMRule<kAdaptive, kGrad>{scalars});
}

void tam_keep(const ChunkOperands& c, const TAMScalars& s) {
  update_tam<false, GradWriteBack::None>(c, s);
}
void tam_unscaled(const ChunkOperands& c, const TAMScalars& s) {
  update_tam<false, GradWriteBack::Unscaled>(c, s);
}
void tam_zero(const ChunkOperands& c, const TAMScalars& s) {
  update_tam<false, GradWriteBack::Zero>(c, s);
}
void adatam_keep(const ChunkOperands& c, const TAMScalars& s) {
  update_tam<true, GradWriteBack::None>(c, s);
}
void adatam_unscaled(const ChunkOperands& c, const TAMScalars& s) {
  update_tam<true, GradWriteBack::Unscaled>(c, s);
}
void adatam_zero(const ChunkOperands& c, const TAMScalars& s) {
  update_tam<true, GradWriteBack::Zero>(c, s);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
