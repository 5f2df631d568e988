// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "hone/kernels/cuda/host_device.h"

// The words of rule/rule_ops-inl.h for single floats: one source of a rule serves Highway's vectors
// and CUDA's threads. Included before any *_rule-inl.h, it takes the place of that header; not for
// files that include Highway.
#define HONE_RULE_OPS_INL_H_
#ifdef __CUDACC__
#define HONE_RULE __host__ __device__ __forceinline__
#else
#define HONE_RULE inline
#endif
#define HONE_RULE_NAMESPACE float_rule
#define HONE_RULE_BEFORE_NAMESPACE() static_assert(true)
#define HONE_RULE_AFTER_NAMESPACE() static_assert(true)

namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

template <class V>
HONE_RULE V set(float value) {
  return value;
}
HONE_RULE float add(float a, float b) { return a + b; }
HONE_RULE float sub(float a, float b) { return a - b; }
HONE_RULE float mul(float a, float b) { return a * b; }
HONE_RULE float div(float a, float b) { return a / b; }
// b where either is NaN, as on x86.
HONE_RULE float max(float a, float b) { return a > b ? a : b; }
HONE_RULE float sqrt(float a) { return ::sqrtf(a); }
HONE_RULE float mul_add(float a, float b, float c) { return ::fmaf(a, b, c); }
HONE_RULE float mul_sub(float a, float b, float c) { return ::fmaf(a, b, -c); }
HONE_RULE float nmul_add(float a, float b, float c) { return ::fmaf(-a, b, c); }
HONE_RULE float sign(float a) { return ::fabsf(a) > 0 ? ::copysignf(1.0f, a) : a; }

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
