// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hone::kernels::cuda {

// Adds kCount values over a block in a fixed order. Only thread 0 has the totals. Call
// __syncthreads() before a second call in one kernel.
template <int kCount, int kThreads>
__device__ inline void sum_over_block(double (&values)[kCount]) {
  constexpr int kWarps = kThreads / 32;
  __shared__ double shared[kCount][kWarps];
  for (int c = 0; c < kCount; ++c) {
    for (int offset = 16; offset > 0; offset /= 2) {
      values[c] += __shfl_down_sync(~0u, values[c], offset);
    }
    if (threadIdx.x % 32 == 0) shared[c][threadIdx.x / 32] = values[c];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int c = 0; c < kCount; ++c) {
    for (int warp = 1; warp < kWarps; ++warp) values[c] += shared[c][warp];
  }
}

}  // namespace hone::kernels::cuda
