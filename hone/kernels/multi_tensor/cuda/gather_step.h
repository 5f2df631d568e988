// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "hone/kernels/cuda/storage.h"
#include "hone/kernels/multi_tensor/cuda/argument_table.h"
#include "hone/kernels/multi_tensor/schedule/statistics.h"

// Pass 1: the sums that one thread computes over one chunk. Thread and block numbers are arguments,
// so that the same code runs in tests without a GPU.
namespace hone::kernels::cuda {

template <Statistics kKind>
constexpr int kSums = static_cast<int>(count_sums(kKind));  // doubles per chunk

constexpr int kLanes = 4;           // elements of one vector access
constexpr int kBlockThreads = 256;  // a chunk of 1024 elements is one access per thread

template <class T>
HONE_HOST_DEVICE inline bool is_aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % (kLanes * sizeof(T)) == 0;
}

// Loads elements [i, i + 4) below `length`, and zeros from there on. The order of additions does
// not depend on the address of a tensor: unaligned tensors are read element by element.
template <class T>
HONE_HOST_DEVICE inline void load_some(const T* data, Index i, Index length, bool aligned,
                                       float (&to)[kLanes]) {
  if (aligned && i + kLanes <= length) return load<kLanes>(data + i, to);
  for (int l = 0; l < kLanes; ++l) to[l] = i + l < length ? widen(data[i + l]) : 0.0f;
}

// Products of two floats are exact in double, so only additions round.
template <Statistics kKind>
HONE_HOST_DEVICE inline void add_products(float g_in, float m_in, float p_in, double* sums) {
  const double g = g_in, m = m_in, p = p_in;
  sums[0] = ::fma(g, g, sums[0]);
  if constexpr (kKind == Statistics::Norm) return;
  sums[1] = ::fma(m, g, sums[1]);
  sums[2] = ::fma(m, m, sums[2]);
  if constexpr (kKind == Statistics::Torque) return;
  sums[3] = ::fma(m, p, sums[3]);
  sums[4] = ::fma(g, p, sums[4]);
  sums[5] = ::fma(p, p, sums[5]);
}

// Adds elements 4 (thread + k threads) … of the block's chunk to `sums`, in the order of
// TorqueSums.
template <Statistics kKind, class G, class Table>
HONE_HOST_DEVICE inline void gather_thread(const ListArguments<Table>& a, int block, int thread,
                                           int threads, double* sums) {
  const BlockEntry entry = a.table.block(block);
  const Index offset = entry.chunk * a.chunk_elements;
  const Index rest = a.table.elements(entry.tensor) - offset;
  const Index length = rest < a.chunk_elements ? rest : a.chunk_elements;
  const G* grad = static_cast<const G*>(a.table.template address<kGrad>(entry.tensor)) + offset;
  const float *momentum = nullptr, *param = nullptr;
  if constexpr (kKind != Statistics::Norm) {
    momentum =
        static_cast<const float*>(a.table.template address<kMomentum>(entry.tensor)) + offset;
  }
  if constexpr (kKind == Statistics::TorqueWithDecay) {
    param = static_cast<const float*>(a.table.template address<kParam>(entry.tensor)) + offset;
  }
  const bool g_aligned = is_aligned(grad), m_aligned = is_aligned(momentum),
             p_aligned = is_aligned(param);
  HONE_UNROLL_4
  for (Index i = Index{kLanes} * thread; i < length; i += Index{kLanes} * threads) {
    float g[kLanes], m[kLanes] = {}, p[kLanes] = {};
    load_some(grad, i, length, g_aligned, g);
    if constexpr (kKind != Statistics::Norm) load_some(momentum, i, length, m_aligned, m);
    if constexpr (kKind == Statistics::TorqueWithDecay) load_some(param, i, length, p_aligned, p);
    for (int l = 0; l < kLanes; ++l) add_products<kKind>(g[l], m[l], p[l], sums);
  }
}

}  // namespace hone::kernels::cuda
