// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/tam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/tam.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/tam_rule-inl.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// HWY_EXPORT takes plain names.
void update_tam(const ChunkOperands& chunk, const TAMScalars& scalars) {
  for_each_vector(chunk, TAMRule<false>{scalars});
}
void update_adatam(const ChunkOperands& chunk, const TAMScalars& scalars) {
  for_each_vector(chunk, TAMRule<true>{scalars});
}
void update_tam_elements(const ChunkOperands& chunk, const TAMScalars& scalars,
                         const ElementTorque& torque) {
  for_each_vector(chunk, TAMElementRule<false>{scalars, torque});
}
void update_adatam_elements(const ChunkOperands& chunk, const TAMScalars& scalars,
                            const ElementTorque& torque) {
  for_each_vector(chunk, TAMElementRule<true>{scalars, torque});
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {
namespace {

HWY_EXPORT(update_tam);
HWY_EXPORT(update_adatam);
HWY_EXPORT(update_tam_elements);
HWY_EXPORT(update_adatam_elements);

void update_tam_plain(const ChunkOperands& chunk, const TAMScalars& s) {
  update_tam_reference<float>(
      chunk, {s.grad_scale, s.l2, s.momentum_keep, s.damping, s.lr, s.keep, s.square_share, s.eps});
}

// Element by element through the rule for one.
void update_elements_plain(const ChunkOperands& chunk, const TAMScalars& s,
                           const ElementTorque& torque) {
  for (Index i = 0; i < chunk.length; ++i) {
    const double g = static_cast<double>(s.grad_scale) * chunk.grad[i] +
                     static_cast<double>(s.l2) * chunk.param[i];
    const double inverse = torque.inverse_norms[(chunk.offset + i) % torque.columns];
    const double kept = chunk.extra[i], cosine = chunk.momentum[i] * g * inverse;
    const double correlation = kept + (1.0 - torque.decay_rate) * (cosine - kept);
    chunk.extra[i] = static_cast<float>(correlation);
    TAMScalars own = s;
    own.damping = static_cast<float>((torque.eps + (1 + correlation) / 2) * torque.share);
    float* second = chunk.second_moment == nullptr ? nullptr : chunk.second_moment + i;
    update_tam_plain({chunk.param + i, chunk.grad + i, chunk.momentum + i, second, nullptr, 1},
                     own);
  }
}

}  // namespace

UpdateTAMChunk choose_tam_update(bool adaptive) {
  if (wants_reference()) return update_tam_plain;
  return adaptive ? HWY_DYNAMIC_DISPATCH(update_adatam) : HWY_DYNAMIC_DISPATCH(update_tam);
}

UpdateElementChunk choose_tam_element_update(bool adaptive) {
  if (wants_reference()) return update_elements_plain;
  return adaptive ? HWY_DYNAMIC_DISPATCH(update_adatam_elements)
                  : HWY_DYNAMIC_DISPATCH(update_tam_elements);
}

}  // namespace hone::kernels
#endif
