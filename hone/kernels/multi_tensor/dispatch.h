// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwy/targets.h>

#include "hone/core/machine/cpu_info.h"

namespace hone::kernels {

// Returns true if HONE_FORCE_KERNEL=multi_tensor:ref requests the plain loops. Also makes Highway
// choose a target, so that a function address taken afterwards is the kernel itself.
inline bool wants_reference() {
  hwy::ChosenTarget& chosen = hwy::GetChosenTarget();
  if (!chosen.IsInitialized()) chosen.Update(hwy::SupportedTargets());
  return forced_kernel("multi_tensor") == "ref";
}

}  // namespace hone::kernels
