// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// What a step leaves in one gradient; `scaled` is g * grad_scale, whose sign is that of maximising.
template <class Real>
void write_back_reference(GradWriteBack mode, double scaled, double grad_scale, Real& grad) {
  if (mode == GradWriteBack::Unscaled) grad = static_cast<Real>(grad_scale < 0 ? -scaled : scaled);
  if (mode == GradWriteBack::Zero) grad = 0;
}

}  // namespace hone::kernels
