// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/finish.h"

#include <cmath>

namespace hone::kernels {

void scale_chunk_ref(float* values, Index length, float factor) {
  for (Index i = 0; i < length; ++i) values[i] *= factor;
}

void limit_chunk_ref(float* values, Index length, float limit) {
  for (Index i = 0; i < length; ++i) {
    if (std::abs(values[i]) > limit) values[i] = std::copysign(limit, values[i]);
  }
}

void average_chunk_ref(const float* values, Index length, float share, float* average) {
  for (Index i = 0; i < length; ++i) {
    const double kept = average[i];
    average[i] = static_cast<float>(kept + static_cast<double>(share) * (values[i] - kept));
  }
}

}  // namespace hone::kernels
