// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/activation/soft_cap.h"

namespace hone::kernels {

void soft_cap_ref(std::span<float> x, float cap) {
  for (float& value : x) {
    const double wide = value;
    value = static_cast<float>(cap * std::tanh(wide / cap));
  }
}

}  // namespace hone::kernels
