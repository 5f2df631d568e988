// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// What follows the rule while a chunk is in cache.

// The functions for the strongest enabled instruction set, for callers of many chunks.
struct FinishPass {
  // values[i] *= factor
  void (*scale)(float* values, Index length, float factor);
  // values[i] within ±limit, at least 0; NaN stays NaN
  void (*limit)(float* values, Index length, float limit);
  // average[i] += share (values[i] - average[i])
  void (*average)(const float* values, Index length, float share, float* average);
};
FinishPass choose_finish();

void scale_chunk_ref(float* values, Index length, float factor);
void limit_chunk_ref(float* values, Index length, float limit);
void average_chunk_ref(const float* values, Index length, float share, float* average);

}  // namespace hone::kernels
