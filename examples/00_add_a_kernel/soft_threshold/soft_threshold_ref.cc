// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "soft_threshold/soft_threshold.h"

namespace example {

void soft_threshold_ref(const SoftThresholdArgs& args) {
  for (Index i = 0; i < args.count; ++i) {
    const float rest = std::abs(args.x[i]) - args.threshold;
    args.y[i] = std::copysign(rest < 0 ? 0.0f : rest, args.x[i]);
  }
}

}  // namespace example
