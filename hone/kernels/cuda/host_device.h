// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks functions that are shared by kernels and by tests without a GPU.
#ifdef __CUDACC__
#define HONE_HOST_DEVICE __host__ __device__
#else
#define HONE_HOST_DEVICE
#endif

// Placed before a loop: unrolls it by four on the device, or not at all.
#ifdef __CUDA_ARCH__
#define HONE_UNROLL_4 _Pragma("unroll 4")
#define HONE_UNROLL_1 _Pragma("unroll 1")
#else
#define HONE_UNROLL_4
#define HONE_UNROLL_1
#endif
