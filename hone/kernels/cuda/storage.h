// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/bf16.h"
#include "hone/core/index.h"
#include "hone/kernels/cuda/host_device.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace hone::kernels::cuda {

// Numbers as stored in memory; arithmetic is in float. Narrowing rounds to nearest, ties to even.
struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

HONE_HOST_DEVICE inline float widen(float value) { return value; }
HONE_HOST_DEVICE inline float widen(BF16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
#else
  return bf16_to_float(value.bits);
#endif
}
HONE_HOST_DEVICE inline float widen(F16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  return f16_to_float(value.bits);
#endif
}

HONE_HOST_DEVICE inline void narrow(float value, float& to) { to = value; }
HONE_HOST_DEVICE inline void narrow(float value, BF16& to) {
#ifdef __CUDA_ARCH__
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  to.bits = float_to_bf16(value);
#endif
}
HONE_HOST_DEVICE inline void narrow(float value, F16& to) {
#ifdef __CUDA_ARCH__
  to.bits = __half_as_ushort(__float2half_rn(value));
#else
  to.bits = float_to_f16(value);
#endif
}

// kLanes neighboring elements moved in one access: 16 bytes for four floats, 8 for four halves.
template <class T, int kLanes>
struct alignas(sizeof(T) * kLanes) Pack {
  T lane[kLanes];
};

// `from` must be aligned to kLanes elements.
template <int kLanes, class T>
HONE_HOST_DEVICE inline void load(const T* from, float (&to)[kLanes]) {
  const auto pack = *reinterpret_cast<const Pack<T, kLanes>*>(from);
  for (int l = 0; l < kLanes; ++l) to[l] = widen(pack.lane[l]);
}
template <int kLanes, class T>
HONE_HOST_DEVICE inline void store(const float (&from)[kLanes], T* to) {
  Pack<T, kLanes> pack;
  for (int l = 0; l < kLanes; ++l) narrow(from[l], pack.lane[l]);
  *reinterpret_cast<Pack<T, kLanes>*>(to) = pack;
}

}  // namespace hone::kernels::cuda
