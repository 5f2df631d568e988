// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/sampling/logit_row.h"

namespace hone::kernels {

LogitRange logit_range_ref(const float* logits, Index count) {
  LogitRange range{.highest = -std::numeric_limits<float>::infinity(), .is_finite = true};
  for (Index i = 0; i < count; ++i) {
    range.highest = std::max(range.highest, logits[i]);
    range.is_finite = range.is_finite && std::isfinite(logits[i]);
  }
  return range;
}

void group_maxima_ref(const float* logits, Index count, float* maxima) {
  for (Index first = 0; first < count; first += kLogitGroup) {
    maxima[first / kLogitGroup] =
        *std::max_element(logits + first, logits + std::min(count, first + kLogitGroup));
  }
}

Index first_at_least_ref(const float* logits, Index count, float bound) {
  return std::find_if(logits, logits + count, [=](float x) { return x >= bound; }) - logits;
}

Index collect_at_least_ref(const float* logits, Index count, float bound, std::int32_t* ids) {
  Index found = 0;
  for (Index i = 0; i < count; ++i) {
    if (logits[i] >= bound) ids[found++] = static_cast<std::int32_t>(i);
  }
  return found;
}

std::uint64_t softmax_masses_ref(const float* logits, Index count, float highest, float temperature,
                                 std::uint64_t* masses) {
  std::uint64_t total = 0;
  for (Index i = 0; i < count; ++i) {
    const double scaled = (static_cast<double>(logits[i]) - highest) / temperature;
    masses[i] = static_cast<std::uint64_t>(std::llround(std::exp(scaled) * 0x1p43));
    total += masses[i];
  }
  return total;
}

}  // namespace hone::kernels
