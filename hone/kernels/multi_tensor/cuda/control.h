// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "hone/core/index.h"
#include "hone/kernels/cuda/host_device.h"
#include "hone/kernels/multi_tensor/step.h"

// Numbers of a step in device memory. A captured graph replays with new values, and no kernel waits
// for the host.
namespace hone::kernels::cuda {

struct ControlValues {
  double inv_scale = 1, clip_norm = 0;
  const float* loss_scale = nullptr;  // device; inv_scale is divided by *loss_scale
  float* found_inf = nullptr;         // device; set to 1 when a step is skipped
  float ema_share = 0;                // 1 - decay
  GradWriteBack grad = GradWriteBack::None;
  bool skip_nonfinite = false;
  bool operator==(const ControlValues&) const = default;
};

struct ControlResults {
  double grad_norm = -1, clip_coef = 1;
  double grad_scale = 1;  // k
  double model_correlation = 0;
  Index first_nonfinite = -1;
  std::int32_t skip = 0;
};

struct Control {
  ControlValues values;
  ControlResults results;
};

// Returns true if the gradients of all tensors must be read before the first parameter may change.
// The host decides this when it enqueues a step.
inline bool needs_global_norm(const ControlValues& values) {
  return values.clip_norm > 0 || values.skip_nonfinite || values.inv_scale != 1 ||
         values.loss_scale != nullptr;
}

// `total` = Σ g·g over raw gradients, which is inf or NaN exactly when some gradient is. `scale` =
// *loss_scale.
HONE_HOST_DEVICE inline ControlResults finish_norm(const ControlValues& values, double scale,
                                                   double total, Index first_nonfinite) {
  ControlResults results;
  const double unscale = values.inv_scale / scale;
  results.first_nonfinite = first_nonfinite;
  results.grad_norm = unscale * std::sqrt(total);
  const bool must_be_finite = values.skip_nonfinite || unscale != 1 || values.loss_scale != nullptr;
  results.skip = must_be_finite && first_nonfinite >= 0 ? 1 : 0;
  if (values.clip_norm > 0 && results.skip == 0) {
    results.clip_coef = clip_coefficient(values.clip_norm, results.grad_norm);
  }
  results.grad_scale = unscale * results.clip_coef;
  return results;
}

}  // namespace hone::kernels::cuda
