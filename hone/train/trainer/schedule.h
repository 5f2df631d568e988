// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::trainer {

// Linear warm-up over W steps, then a half cosine down to floor·peak. With s from 0:
//   s < W:  peak·(s+1)/W
//   else:   peak·(floor + (1-floor)·(1 + cos(π·(s-W)/(T-W)))/2)
struct WarmupCosine {
  double peak = 0, floor = 0;
  Index warm_up = 0, steps = 0;  // W, T

  double at(Index step) const;
};

}  // namespace hone::trainer
