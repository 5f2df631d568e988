// SPDX-License-Identifier: Apache-2.0
// Makes kernels of element-wise rules, for every Highway target and as plain loops. A .cc file with
// rules includes <hwy/foreach_target.h>, as Highway's dynamic dispatch requires, and then this
// header. It names each kernel once:
//
//   HONE_RULE_KERNEL(adam, AdamScalars, AdamRule)
//
// defines choose_adam(), which returns the kernel for this processor.
#if defined(HONE_RULE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_RULE_KERNEL_INL_H_
#undef HONE_RULE_KERNEL_INL_H_
#else
#define HONE_RULE_KERNEL_INL_H_
#endif

#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/rule/elementwise_step.h"
#include "hone/kernels/multi_tensor/rule/stages-inl.h"
#include "hone/kernels/multi_tensor/rule/vector_loop-inl.h"

#undef HONE_RULE_KERNEL_TARGET
#define HONE_RULE_KERNEL_TARGET(NAME, SCALARS, RULE)                       \
  HWY_BEFORE_NAMESPACE();                                                  \
  namespace hone::kernels {                                                \
  namespace HWY_NAMESPACE {                                                \
  void update_##NAME(const ChunkOperands& chunk, const SCALARS& scalars) { \
    for_each_vector<RULE>(chunk, scalars);                                 \
  }                                                                        \
  } /* namespace HWY_NAMESPACE */                                          \
  } /* namespace hone::kernels */                                          \
  HWY_AFTER_NAMESPACE();

#undef HONE_RULE_KERNEL
#if HWY_ONCE
#define HONE_RULE_KERNEL(NAME, SCALARS, RULE)                                               \
  HONE_RULE_KERNEL_TARGET(NAME, SCALARS, RULE)                                              \
  namespace hone::kernels {                                                                 \
  namespace {                                                                               \
  HWY_EXPORT(update_##NAME);                                                                \
  void update_##NAME##_plain(const ChunkOperands& chunk, const SCALARS& scalars) {          \
    HWY_NAMESPACE::for_each_element<HWY_NAMESPACE::RULE>(chunk, scalars);                   \
  }                                                                                         \
  UpdateChunk<SCALARS> choose_##NAME() {                                                    \
    return wants_reference() ? update_##NAME##_plain : HWY_DYNAMIC_DISPATCH(update_##NAME); \
  }                                                                                         \
  } /* namespace */                                                                         \
  } /* namespace hone::kernels */                                                           \
  static_assert(true)
#else
#define HONE_RULE_KERNEL(NAME, SCALARS, RULE) \
  HONE_RULE_KERNEL_TARGET(NAME, SCALARS, RULE) static_assert(true)
#endif

#endif
