// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// A part of a vector whose p-norm is scale · sum^(1/p); scale is inf or NaN exactly when an element
// is. Two numbers, because powers of finite fp32 values may exceed fp64.
struct NormPart {
  double scale = 0, sum = 1;
};

// p-norm of the vector that the parts make up, max |x| for p = infinity. p > 0.
double combine_norms(std::span<const NormPart> parts, double norm_type);

// The p-norm of one chunk, added in double.
using MeasureNorm = NormPart (*)(const float* values, Index length, double norm_type);

// The function for the strongest enabled instruction set: vectors for 1, 2 and infinity, a call of
// pow per element otherwise.
MeasureNorm choose_norm(double norm_type);
// The same as plain loops.
NormPart measure_norm_reference(const float* values, Index length, double norm_type);

// Fills the report's norm from that of the gradients as they are, and the clip coefficient. False,
// and the report says so, when first_nonfinite_tensor is set and the step must be skipped.
bool report_norm(const StepControl& control, double raw_norm, StepReport& report);

// The sweep that measures the norm where the sums of pass 1 do not tell it. Parts are kept per
// chunk and added in the order of chunks, so that every number of workers gives the same bits.
class NormSweep {
 public:
  // Measures nothing unless `wanted`.
  NormSweep(const MultiTensorPlan& plan, double norm_type, bool wanted);

  bool measures() const { return measure_ != nullptr; }
  Index bytes() const { return static_cast<Index>(parts_.size() * sizeof(NormPart)); }
  void gather(Index chunk, const ChunkOperands& operands) {
    parts_[static_cast<std::size_t>(chunk)] = measure_(operands.grad, operands.length, norm_type_);
  }
  // After all chunks: report_norm(), and the first tensor with an inf or NaN.
  bool measure_norm(const StepControl& control, StepReport& report) const;

 private:
  const MultiTensorPlan& plan_;
  double norm_type_;
  MeasureNorm measure_ = nullptr;
  std::vector<NormPart> parts_;  // [chunk]
};

}  // namespace hone::kernels
