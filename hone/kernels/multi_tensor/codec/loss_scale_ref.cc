// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "hone/core/bf16.h"
#include "hone/kernels/multi_tensor/codec/loss_scale.h"

namespace hone::kernels {
namespace {

float through_f16(float value) { return f16_to_float(float_to_f16(value)); }

// The bin of finite x ≠ 0.
std::size_t bin_of(float x) { return (std::bit_cast<std::uint32_t>(std::abs(x)) - 1) >> 23; }

}  // namespace

F16Statistics& F16Statistics::operator+=(const F16Statistics& other) {
  for (std::size_t b = 0; b < bins.size(); ++b) bins[b] += other.bins[b];
  zeros += other.zeros;
  nonfinite += other.nonfinite;
  underflows += other.underflows;
  subnormals += other.subnormals;
  overflows += other.overflows;
  square_sum += other.square_sum;
  error_square_sum += other.error_square_sum;
  largest = std::max(largest, other.largest);
  return *this;
}

double unscale_chunk_reference(float* grad, Index length, float inv_scale) {
  double square_sum = 0;
  for (Index i = 0; i < length; ++i) {
    square_sum += static_cast<double>(grad[i]) * static_cast<double>(grad[i]);
    grad[i] *= inv_scale;
  }
  return square_sum;
}

void round_through_f16_reference(const float* from, float* to, Index length) {
  for (Index i = 0; i < length; ++i) to[i] = through_f16(from[i]);
}

void measure_f16_reference(const float* values, Index length, float factor, float scale,
                           F16Statistics& into) {
  for (Index i = 0; i < length; ++i) {
    const float x = values[i] * factor, scaled = x * scale, rounded = through_f16(scaled);
    if (!std::isfinite(x)) {
      ++into.nonfinite;
      continue;
    }
    if (x == 0) {
      ++into.zeros;
    } else {
      ++into.bins[bin_of(x)];
    }
    into.largest = std::max(into.largest, std::abs(x));
    if (std::isinf(rounded)) {
      ++into.overflows;
      continue;
    }
    into.underflows += x != 0 && rounded == 0;
    into.subnormals += rounded != 0 && std::abs(rounded) < 0x1p-14f;
    const double error = static_cast<double>(scaled - rounded) / scale;
    into.square_sum += static_cast<double>(x) * x;
    into.error_square_sum += error * error;
  }
}

}  // namespace hone::kernels
