// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/kernels/sketch/sketch_op.h"

namespace hone::kernels {

// Writes the part of a dense operator from (row0, col0) on to out [rows, cols], whose rows are
// `stride` elements apart. Multiplies by `scale` in place of the operator's own scale. Checks
// nothing.
struct DensePart {
  Index row0 = 0, col0 = 0, rows = 0, cols = 0, stride = 0;
  double scale = 1;
};
void fill_dense(const SketchOp& op, const DensePart& part, float* out);
void fill_dense(const SketchOp& op, const DensePart& part, double* out);

// y[i] = scale * x[i], with the sign inverted if bit i of `bits` is set; the lowest bit of each
// word is first. y may be x.
void scale_signed(const std::uint32_t* bits, const float* x, Index count, float scale, float* y);
void scale_signed(const std::uint32_t* bits, const double* x, Index count, double scale, double* y);

}  // namespace hone::kernels
