// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/multi_tensor/cuda/block_sum.cuh"
#include "hone/kernels/multi_tensor/cuda/rule_policy.h"

// Kernels between the passes: from sums of chunks to sums of tensors, and from these to scalars.
namespace hone::kernels::cuda {

constexpr int kCombineThreads = 128;
constexpr int kMostSums = 6;

struct CombineArguments {
  const double* chunk_sums = nullptr;  // [block][kCount]
  const Index* first_block = nullptr;  // [tensor + 1]
  double* tensor_sums = nullptr;       // [tensor][kMostSums]
};

// Adds the sums of the chunks of one tensor, with one block in a fixed order. Thread 0 has the
// result.
template <int kCount>
__device__ inline void combine_tensor(const CombineArguments& a, Index tensor,
                                      double (&sums)[kCount]) {
  const Index end = a.first_block[tensor + 1];
#pragma unroll 4
  for (Index block = a.first_block[tensor] + threadIdx.x; block < end; block += kCombineThreads) {
    for (int s = 0; s < kCount; ++s) sums[s] += a.chunk_sums[block * kCount + s];
  }
  sum_over_block<kCount, kCombineThreads>(sums);
}

// For TAM, tensor by tensor: sums and scalars in one launch.
template <int kCount, class Policy>
__global__ void __launch_bounds__(kCombineThreads)
    combine_and_prepare_kernel(CombineArguments a, PrepareArguments<Policy> prepare) {
  const Index tensor = blockIdx.x;
  double sums[kCount] = {};
  combine_tensor<kCount>(a, tensor, sums);
  if (threadIdx.x == 0) prepare_tensor(prepare, tensor, sums_of(sums, kCount));
}

// One thread per tensor. `sums` is [tensor][kMostSums], or null if the rule needs none.
template <class Policy>
__global__ void prepare_kernel(PrepareArguments<Policy> a, const double* sums, Index tensors) {
  const Index tensor = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (tensor >= tensors) return;
  TorqueSums own;
  if (sums != nullptr) own = sums_of(sums + tensor * kMostSums, kMostSums);
  prepare_tensor(a, tensor, own);
}

// For TAM in Model scope, one block: computes s from the torque of all tensors.
template <class Policy>
__global__ void __launch_bounds__(kCombineThreads)
    model_correlation_kernel(PrepareArguments<Policy> a, Control* control, const double* sums,
                             Index tensors) {
  if (control->results.skip != 0) return;
  double total[3] = {};
  for (Index i = threadIdx.x; i < tensors; i += kCombineThreads) {
    const Torque torque = effective_torque(sums_of(sums + i * kMostSums, kMostSums),
                                           control->results.grad_scale, a.groups[a.group_of[i]]);
    total[0] += torque.mg;
    total[1] += torque.mm;
    total[2] += torque.gg;
  }
  sum_over_block<3, kCombineThreads>(total);
  if (threadIdx.x != 0) return;
  Torque torque;
  torque.mg = total[0];
  torque.mm = total[1];
  torque.gg = total[2];
  const double s = model_correlation(a.groups[0], a.correlation[0], torque);
  control->results.model_correlation = s;
  a.correlation[0] = s;
}

}  // namespace hone::kernels::cuda
