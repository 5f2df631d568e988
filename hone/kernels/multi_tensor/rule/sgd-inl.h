// SPDX-License-Identifier: Apache-2.0
// Vector code of sgd.h, compiled once per Highway target.
#if defined(HONE_SGD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_SGD_INL_H_
#undef HONE_SGD_INL_H_
#else
#define HONE_SGD_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

template <bool kHasMomentum, GradWriteBack kGrad>
struct SGDRule {
  static constexpr bool kMomentum = kHasMomentum, kSecondMoment = false, kExtra = false;
  static constexpr bool kWritesGrad = kGrad != GradWriteBack::None;
  SGDScalars s;

  HWY_INLINE void step(const ChunkOperands& chunk, Index i) const {
    const Floats d;
    const FloatVec p = hn::LoadU(d, chunk.param + i);
    const FloatVec scaled = hn::Mul(hn::LoadU(d, chunk.grad + i), hn::Set(d, s.grad_scale));
    const FloatVec g = hn::MulAdd(hn::Set(d, s.l2), p, scaled);
    FloatVec update = g;
    if constexpr (kHasMomentum) {
      const FloatVec kept = hn::Mul(hn::LoadU(d, chunk.momentum + i), hn::Set(d, s.momentum_keep));
      const FloatVec m = hn::MulAdd(g, hn::Set(d, s.grad_share), kept);
      hn::StoreU(m, d, chunk.momentum + i);
      update = hn::MulAdd(m, hn::Set(d, s.look_ahead), hn::Mul(g, hn::Set(d, s.grad_in_update)));
    }
    hn::StoreU(hn::NegMulAdd(update, hn::Set(d, s.lr), p), d, chunk.param + i);
    write_back<kGrad>(scaled, s.grad_scale, chunk.grad + i);
  }
};

template <bool kHasMomentum, GradWriteBack kGrad>
void update_sgd(const ChunkOperands& chunk, const SGDScalars& scalars) {
  for_each_vector(chunk, SGDRule<kHasMomentum, kGrad>{scalars});
}

void sgd_keep(const ChunkOperands& c, const SGDScalars& s) {
  update_sgd<false, GradWriteBack::None>(c, s);
}
void sgd_unscaled(const ChunkOperands& c, const SGDScalars& s) {
  update_sgd<false, GradWriteBack::Unscaled>(c, s);
}
void sgd_zero(const ChunkOperands& c, const SGDScalars& s) {
  update_sgd<false, GradWriteBack::Zero>(c, s);
}
void sgdm_keep(const ChunkOperands& c, const SGDScalars& s) {
  update_sgd<true, GradWriteBack::None>(c, s);
}
void sgdm_unscaled(const ChunkOperands& c, const SGDScalars& s) {
  update_sgd<true, GradWriteBack::Unscaled>(c, s);
}
void sgdm_zero(const ChunkOperands& c, const SGDScalars& s) {
  update_sgd<true, GradWriteBack::Zero>(c, s);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
