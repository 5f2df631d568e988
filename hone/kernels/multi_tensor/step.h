// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "hone/core/index.h"
#include "hone/kernels/cuda/host_device.h"

namespace hone::kernels {

// The contents of the gradients after a step.
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
  // Limit on the global norm of the unscaled gradients; 0: none. Infinity measures the norm and
  // clips nothing.
  double clip_norm = 0;
  // Limit on |g| of each unscaled gradient, like torch.nn.utils.clip_grad_value_; 0: none. NaN
  // stays NaN. Not allowed with a clip_norm, unless one of the two is infinite.
  double clip_value = 0;
  // The global norm is (Σ |g|^p)^(1/p) over all elements with this p > 0, or max |g| for infinity.
  // Any p except 2 takes a separate sweep over the gradients. Any p except 1, 2 and infinity also
  // calls pow for each element, which is slow.
  double norm_type = 2;
  // All or nothing: first computes new values without storing them, and makes the step only if
  // every parameter and moment is finite. This takes time, but no memory except a scratch buffer
  // per worker.
  bool checked = false;
  GradWriteBack grad = GradWriteBack::None;
  // Skips the step if a gradient is inf or NaN. Also implied by inv_scale != 1.
  bool skip_nonfinite = false;
  // If the lists have `ema`: ema <- ema_decay ema + (1 - ema_decay) p, after the parameter.
  double ema_decay = 0;
  // Stochastic rounding depends on this seed, the tensor's key, its step, slot and element.
  std::uint64_t rounding_seed = 0;

  // Returns true if every gradient must be read before the first parameter may change.
  bool needs_global_norm() const { return clip_norm > 0 || skip_nonfinite || inv_scale != 1; }
  // Returns clip_value for gradients that are still to be multiplied by `scale`; infinity if there
  // is none.
  float grad_limit(double scale = 1) const {
    return clip_value > 0 ? static_cast<float>(clip_value / scale)
                          : std::numeric_limits<float>::infinity();
  }
};

// Returns min(1, clip_norm / (norm + 1e-6)); the constant is PyTorch's. An infinite limit clips
// nothing. With a finite limit, NaN stays NaN, as in PyTorch.
HONE_HOST_DEVICE inline double clip_coefficient(double clip_norm, double norm) {
  const double coefficient = clip_norm / (norm + 1e-6);
  return coefficient > 1 || std::isinf(clip_norm) ? 1 : coefficient;
}

struct StepReport {
  // If false, nothing changed: no parameter, moment, correlation, counter or gradient.
  bool stepped = true;
  // True if StepControl::checked stopped the step: a new value is not finite, although all
  // gradients that were checked before are finite.
  bool stopped_by_check = false;
  // Norm of the unscaled gradients before clipping, with StepControl::norm_type; -1 if it was not
  // needed.
  double grad_norm = -1;
  double clip_coef = 1;  // clip_coefficient()
  // Position in the list of the first tensor with an inf or NaN gradient (or, for a checked step,
  // with a non-finite new value); -1 if none was found or nothing was checked.
  Index first_nonfinite_tensor = -1;
  // Bytes that the step allocated and released.
  Index temporary_bytes = 0;
};

}  // namespace hone::kernels
