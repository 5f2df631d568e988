// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// A part of a vector whose p-norm is scale · sum^(1/p); scale is inf or NaN exactly when an element
// is. There are two numbers because powers of finite fp32 values may exceed fp64.
struct NormPart {
  double scale = 0, sum = 1;
};

// Returns the p-norm of the vector that consists of the parts; max |x| for p = infinity. p > 0.
double combine_norms(std::span<const NormPart> parts, double norm_type);

// The p-norm of one chunk, added in double.
using MeasureNorm = NormPart (*)(const float* values, Index length, double norm_type);

// Returns the function for the strongest enabled instruction set. It uses vectors for norms 1, 2
// and infinity, and otherwise calls pow for each element.
MeasureNorm choose_norm(double norm_type);
// Reference: plain loops.
NormPart measure_norm_reference(const float* values, Index length, double norm_type);

// Fills the report's norm from the norm of the raw gradients, and the clip coefficient. Returns
// false if first_nonfinite_tensor is set and the step must be skipped; the report then says so.
bool report_norm(const StepControl& control, double raw_norm, StepReport& report);

// A sweep that measures the norm if the sums of pass 1 do not contain it. Parts are kept per chunk
// and added in the order of chunks, so the bits do not depend on the number of workers.
class NormSweep {
 public:
  // Measures nothing unless `wanted`.
  NormSweep(const MultiTensorPlan& plan, double norm_type, bool wanted);

  bool measures() const { return measure_ != nullptr; }
  Index bytes() const { return static_cast<Index>(parts_.size() * sizeof(NormPart)); }
  void gather(Index chunk, const ChunkOperands& operands) {
    parts_[static_cast<std::size_t>(chunk)] = measure_(operands.grad, operands.length, norm_type_);
  }
  // Call it after all chunks. Calls report_norm() and finds the first tensor with an inf or NaN.
  bool measure_norm(const StepControl& control, StepReport& report) const;

 private:
  const MultiTensorPlan& plan_;
  double norm_type_;
  MeasureNorm measure_ = nullptr;
  std::vector<NormPart> parts_;  // [chunk]
};

}  // namespace hone::kernels
