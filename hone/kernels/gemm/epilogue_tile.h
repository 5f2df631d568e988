// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/gemm/epilogue.h"
#include "hone/kernels/gemm/panel_layout.h"

namespace hone::kernels {

// A finished tile of sums: values[m][16 p + lane], with panels in the order of the PackedMatrix.
struct EpilogueTile {
  float* values;  // aligned to 64
  Index stride;   // floats between rows
  Index rows;     // rows of x
  Index panels;
  Index first_output;  // index in y of the tile's first output
  Index outputs;       // the number of valid outputs; the rest is padding
};

// Applies bias and activation in place. Then values[m][0 … outputs) lack only the residual.
// total_outputs is the weight's rows(), where the up half of a gated bias begins.
void finish_tile(const EpilogueTile& tile, const Epilogue& epilogue, Index total_outputs);

// y[m][first_output …] = values, plus residual[m][first_output …] if it is not null.
void store_tile(const EpilogueTile& tile, const float* residual, Index residual_stride, float* y,
                Index y_stride);

}  // namespace hone::kernels
