// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/multi_tensor/layout/chunk_operands.h"

namespace hone::kernels {

// Sums that pass 1 of a step measures, over raw (still scaled) gradients g, momentum m and
// parameter p:
//   Norm             g.g                               4 bytes read per element
//   Torque           g.g, m.g, m.m                     8
//   TorqueWithDecay  g.g, m.g, m.m, m.p, g.p, p.p     12
// The finite check is free: a sum in fp64 of squares of finite fp32 values cannot overflow, so g.g
// is inf or NaN exactly when some element of g is.
enum class Statistics { None, Norm, Torque, TorqueWithDecay };

// Sums stored per chunk: 0, 1, 3, 6.
constexpr Index count_sums(Statistics kind) {
  constexpr Index counts[] = {0, 1, 3, 6};
  return counts[static_cast<int>(kind)];
}

// Sums of one tensor or of all, in double. Sums that were not gathered are 0.
struct TorqueSums {
  double gg = 0, mg = 0, mm = 0, mp = 0, gp = 0, pp = 0;
};

// Adds up one chunk and writes count_sums(kind) doubles in the order of TorqueSums. Products of two
// fp32 values are exact in fp64, so only additions round. Here chunk.grad_limit limits the raw
// gradients.
using GatherChunk = void (*)(const ChunkOperands& chunk, double* sums);

// Returns the function for the strongest enabled instruction set. `kind` must not be None. With
// `limited`, the function applies a finite chunk.grad_limit, and `kind` must not be Norm.
GatherChunk choose_gather(Statistics kind, bool limited = false);

// Reference: plain loops.
template <class Real>
void gather_reference(Statistics kind, const BasicChunkOperands<Real>& chunk, double* sums);

}  // namespace hone::kernels
