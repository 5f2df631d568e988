// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hone::trainer {

double WarmupCosine::at(Index step) const {
  if (step < warm_up) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warm_up);
  }
  const double done = static_cast<double>(step - warm_up) /
                      static_cast<double>(std::max<Index>(1, steps - warm_up));
  return peak * (floor + (1 - floor) * (1 + std::cos(std::numbers::pi * done)) / 2);
}

}  // namespace hone::trainer
