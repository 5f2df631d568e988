// SPDX-License-Identifier: Apache-2.0
#include "hone/train/memory/abandoned_backward.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

namespace hone::memory {

AbandonedBackward::AbandonedBackward() {
  const c10::AutoGradMode enabled(true);
  oldest_ = at::zeros({0}).requires_grad_(true).sum();
  gradient_ = at::ones({});
}

void AbandonedBackward::release() const { oldest_.backward(gradient_, /*retain_graph=*/true); }

}  // namespace hone::memory
