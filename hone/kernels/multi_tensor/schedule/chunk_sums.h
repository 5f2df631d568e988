// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/schedule/statistics.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// Pass 1: sums over each chunk. They are kept per chunk and added in the order of chunks, so the
// bits do not depend on the number of workers.
class ChunkSums {
 public:
  // Measures nothing for Statistics::None. `grad_limit` limits the raw gradients; it must be
  // infinite for Statistics::Norm.
  ChunkSums(const MultiTensorPlan& plan, Statistics statistics, float grad_limit);

  bool measures() const { return gather_ != nullptr; }
  // Number of slots that gather() reads, starting with the first slot.
  int slots() const { return slots_; }
  Index bytes() const { return static_cast<Index>(sums_.size() * sizeof(double)); }

  void gather(Index chunk, ChunkOperands operands) {
    operands.grad_limit = grad_limit_;
    gather_(operands, sums_.data() + chunk * per_chunk_);
  }
  // Returns the sums of one tensor, after gather() was called for all of its chunks.
  TorqueSums of_tensor(Index tensor) const;
  // Fills the report's norm, clip coefficient and first non-finite tensor. Returns false if the
  // step must be skipped; the report then says so.
  bool measure_norm(const StepControl& control, StepReport& report) const;

 private:
  const MultiTensorPlan& plan_;
  GatherChunk gather_ = nullptr;
  float grad_limit_;
  int slots_ = 0;
  Index per_chunk_ = 0;
  std::vector<double> sums_;  // [chunk][per_chunk_]
};

}  // namespace hone::kernels
