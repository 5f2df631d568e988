// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/train/amp/amp_config.h"

namespace hone::trainer {

// What the memory of a run's steps depends on, beside its task and optimizer. A precision that is
// auto counts as fp32, which takes more.
struct ProbeOptions {
  amp::AmpConfig amp = {};
  double ema_decay = 0;
};

}  // namespace hone::trainer
