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

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {
namespace {

HWY_EXPORT(update_tam);
HWY_EXPORT(update_adatam);

void update_tam_plain(const ChunkOperands& chunk, const TAMScalars& s) {
  update_tam_reference<float>(
      chunk, {s.grad_scale, s.l2, s.momentum_keep, s.damping, s.lr, s.keep, s.square_share, s.eps});
}

}  // namespace

UpdateTAMChunk choose_tam_update(bool adaptive) {
  if (wants_reference()) return update_tam_plain;
  return adaptive ? HWY_DYNAMIC_DISPATCH(update_adatam) : HWY_DYNAMIC_DISPATCH(update_tam);
}

}  // namespace hone::kernels
#endif
