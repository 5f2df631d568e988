// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/train/amp/amp_config.h"

namespace hone::trainer {

// Parameters of the memory of a run's steps, besides the task and the optimizer. A precision of
// "auto" counts as fp32, which takes more memory.
struct ProbeOptions {
  amp::AmpConfig amp = {};
  double ema_decay = 0;
};

}  // namespace hone::trainer
