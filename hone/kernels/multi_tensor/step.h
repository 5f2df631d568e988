// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "hone/core/index.h"
#include "hone/kernels/cuda/host_device.h"

namespace hone::kernels {

// What a step leaves in the gradients.
enum class GradWriteBack {
  None,      // untouched
  Unscaled,  // unscaled and clipped: g * inv_scale * clip_coef, within clip_value
  Zero,
};

// One optimizer step over all tensors, in this order: unscale, clip by the global norm or by value,
// weight decay, moments, parameter, gradient write-back.
struct StepControl {
  // 1 / (loss scale * accumulated weight). Finite and positive.
  double inv_scale = 1;
  // Global norm limit of the unscaled gradients, 0: none. Infinity measures the norm and clips
  // nothing.
  double clip_norm = 0;
  // Limit of |g| of each unscaled gradient, as torch.nn.utils.clip_grad_value_; 0: none. NaN stays
  // NaN. Not beside a clip_norm, unless one of the two is infinite.
  double clip_value = 0;
  // The global norm is (Σ |g|^p)^(1/p) over all elements with this p > 0, max |g| for infinity.
  // Another than 2 takes a sweep over the gradients of its own; another than 1, 2 and infinity a
  // call of pow for each element, which is slow.
  double norm_type = 2;
  // All or nothing: new values are computed once without storing; only if every parameter and
  // moment is finite does the step happen. Costs time, no memory but a scratch per worker.
  bool checked = false;
  GradWriteBack grad = GradWriteBack::None;
  // Skip the step when a gradient is inf or NaN. Also implied by inv_scale != 1.
  bool skip_nonfinite = false;
  // Where the lists have `ema`: ema <- ema_decay ema + (1 - ema_decay) p, after the parameter.
  double ema_decay = 0;
  // Stochastic rounding depends on this seed, the tensor's key, its step, slot and element.
  std::uint64_t rounding_seed = 0;

  // Whether every gradient must be read before the first parameter may change.
  bool needs_global_norm() const { return clip_norm > 0 || skip_nonfinite || inv_scale != 1; }
  // clip_value for gradients that `scale` is still to multiply; infinity: there is none.
  float grad_limit(double scale = 1) const {
    return clip_value > 0 ? static_cast<float>(clip_value / scale)
                          : std::numeric_limits<float>::infinity();
  }
};

// min(1, clip_norm / (norm + 1e-6)), the constant being PyTorch's. An infinite limit clips nothing;
// where there is a limit NaN stays NaN, as in PyTorch.
HONE_HOST_DEVICE inline double clip_coefficient(double clip_norm, double norm) {
  const double coefficient = clip_norm / (norm + 1e-6);
  return coefficient > 1 || std::isinf(clip_norm) ? 1 : coefficient;
}

struct StepReport {
  // false: nothing changed, no parameter, moment, correlation, counter or gradient.
  bool stepped = true;
  // Whether StepControl::checked stopped the step: a new value is not finite, although no gradient
  // that was looked at before is.
  bool stopped_by_check = false;
  // Norm of the unscaled gradients before clipping, of StepControl::norm_type; -1 if it was not
  // needed.
  double grad_norm = -1;
  double clip_coef = 1;  // clip_coefficient()
  // Position in the list of the first tensor with an inf or NaN gradient (or, for a checked step,
  // with a non-finite new value); -1: none found or not looked for.
  Index first_nonfinite_tensor = -1;
  // Bytes the step allocated and released again.
  Index temporary_bytes = 0;
};

}  // namespace hone::kernels
