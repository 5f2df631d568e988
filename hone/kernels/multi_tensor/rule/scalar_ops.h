// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "hone/kernels/cuda/host_device.h"

// The operations of rule_ops-inl.h for single numbers, so that one source of a rule serves
// Highway's vectors, plain loops in double and CUDA's threads.
namespace hone::kernels::scalar_rule {

template <class V>
HONE_HOST_DEVICE inline V set(double value) {
  return static_cast<V>(value);
}
HONE_HOST_DEVICE inline float add(float a, float b) { return a + b; }
HONE_HOST_DEVICE inline float sub(float a, float b) { return a - b; }
HONE_HOST_DEVICE inline float mul(float a, float b) { return a * b; }
HONE_HOST_DEVICE inline float div(float a, float b) { return a / b; }
// Return b if either is NaN, as on x86.
HONE_HOST_DEVICE inline float min(float a, float b) { return a < b ? a : b; }
HONE_HOST_DEVICE inline float max(float a, float b) { return a > b ? a : b; }
HONE_HOST_DEVICE inline float sqrt(float a) { return ::sqrtf(a); }
HONE_HOST_DEVICE inline float mul_add(float a, float b, float c) { return ::fmaf(a, b, c); }
HONE_HOST_DEVICE inline float mul_sub(float a, float b, float c) { return ::fmaf(a, b, -c); }
HONE_HOST_DEVICE inline float nmul_add(float a, float b, float c) { return ::fmaf(-a, b, c); }
HONE_HOST_DEVICE inline float sign(float a) { return ::fabsf(a) > 0 ? ::copysignf(1.0f, a) : a; }

inline double add(double a, double b) { return a + b; }
inline double sub(double a, double b) { return a - b; }
inline double mul(double a, double b) { return a * b; }
inline double div(double a, double b) { return a / b; }
inline double min(double a, double b) { return a < b ? a : b; }
inline double max(double a, double b) { return a > b ? a : b; }
inline double sqrt(double a) { return std::sqrt(a); }
inline double mul_add(double a, double b, double c) { return a * b + c; }
inline double mul_sub(double a, double b, double c) { return a * b - c; }
inline double nmul_add(double a, double b, double c) { return c - a * b; }
inline double sign(double a) { return std::fabs(a) > 0 ? std::copysign(1.0, a) : a; }

}  // namespace hone::kernels::scalar_rule

// If included before stages-inl.h or a file of rules, this header replaces rule_ops-inl.h. Files
// that include Highway must not include it.
#ifndef HWY_NAMESPACE
#define HONE_RULE_OPS_INL_H_
#ifdef __CUDACC__
#define HONE_RULE __host__ __device__ __forceinline__
#else
#define HONE_RULE inline
#endif
#define HONE_RULE_NAMESPACE scalar_rule
#define HONE_RULE_BEFORE_NAMESPACE() static_assert(true)
#define HONE_RULE_AFTER_NAMESPACE() static_assert(true)
#endif
