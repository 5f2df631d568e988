// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "hone/core/index.h"

namespace hone::kernels {

// Effects of loss scaling and fp16 on gradients. Each function processes one dense chunk, on the
// calling thread, at any alignment.

// grad ← inv_scale · grad in one sweep. Returns Σ g² of the previous values in double, which is inf
// or NaN exactly when some element is.
double unscale_chunk(float* grad, Index length, float inv_scale);

// to[i] = from[i] rounded to fp16 and back: nearest, ties to even, subnormals kept, infinity from
// 65,520 on, NaN stays NaN. `to` may be `from`.
void round_through_f16(const float* from, float* to, Index length);

// Counts of values x and of fp16(scale · x). Overflowing elements are only counted; for the others,
// error = x - fp16(scale · x) / scale.
struct F16Statistics {
  // Bin b: finite x with 2^(b-127) < |x| ≤ 2^(b-126); bin 0: 0 < |x| ≤ 2^-126. The upper ends are
  // closed because fp16 rounds 2^-25 to zero and everything above it to 2^-24. So the bins
  // determine exactly what underflows if the scale is a power of two.
  static constexpr Index kBins = 255;
  static constexpr int kFirstExponent = -126;  // bin b ends at 2^(kFirstExponent + b)

  std::array<Index, kBins> bins{};
  Index zeros = 0, nonfinite = 0;
  Index underflows = 0;  // x ≠ 0, fp16(scale · x) = 0
  Index subnormals = 0;  // 0 < |fp16(scale · x)| < 2^-14
  Index overflows = 0;   // x finite, fp16(scale · x) is not
  double square_sum = 0, error_square_sum = 0;
  float largest = 0;  // max |x| over finite x

  F16Statistics& operator+=(const F16Statistics& other);
};

// Adds the chunk to `into`, with x = factor · values[i] in fp32. `scale` must be finite and
// positive.
void measure_f16(const float* values, Index length, float factor, float scale, F16Statistics& into);

// References: plain loops.
double unscale_chunk_reference(float* grad, Index length, float inv_scale);
void round_through_f16_reference(const float* from, float* to, Index length);
void measure_f16_reference(const float* values, Index length, float factor, float scale,
                           F16Statistics& into);

}  // namespace hone::kernels
