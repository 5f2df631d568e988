// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>

#include "hone/core/file/json_io.h"
#include "hone/train/amp/amp_config.h"
#include "hone/train/amp/autocast_guard.h"
#include "hone/train/amp/grad_scaler.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::amp {

// The precision of products in forward passes, loss scaling, and the treatment of a step whose
// gradient is not finite.
struct AmpOptions {
  at::ScalarType precision = at::kFloat;  // kBFloat16 or kHalf: autocast on `device`
  c10::DeviceType device = at::kCPU;
  std::optional<amp::GradScalerOptions> scaler;
  bool skip_nonfinite = false;  // skip steps that are not finite; always true with a scaler
  Index max_skipped_steps = kMaxSkippedSteps;  // this many in a row end the run
};

// The outcome of an optimizer step. The last two fields are empty without a scaler.
struct PrecisionStep {
  optim::StepReport report;
  bool found_inf = false;  // in a gradient
  std::optional<ScaleUpdate> update;
  std::optional<Index> growth_tracker;  // after the update
};

// The mixed-precision part of a training step. Weights, gradients and state stay fp32. Default
// AmpOptions do not change a bit of the results.
class MixedPrecision {
 public:
  explicit MixedPrecision(const AmpOptions& options);

  // True if steps with a gradient that is not finite are skipped.
  bool skips() const { return scaler_.has_value() || options_.skip_nonfinite; }
  // The current loss scale; nothing if losses are not scaled.
  std::optional<double> loss_scale() const;

  // A guard for the scope of a forward pass.
  amp::AutocastGuard autocast() const;
  torch::Tensor scale(const torch::Tensor& loss);
  // Unscales the gradients, runs the optimizer's step and then the scaler's update. A step whose
  // gradient is not finite changes nothing. Throws Error{Internal} that names `step` (from 0) if
  // the step may not be skipped, or after max_skipped_steps skipped steps in a row. Calls `loss`
  // only to form messages, because that may wait for a device.
  PrecisionStep step(optim::MultiTensorOptimizer& optimizer, optim::StepControl control, Index step,
                     const std::function<double()>& loss);

  // The scaler's state; null without a scaler.
  Json state_dict() const;
  // Throws Error{InvalidArgument} if only one of the state and this object has a scaler.
  void load_state_dict(const Json& state);

 private:
  // Throws Error{Internal} if the step may not be skipped.
  void check_skip(const optim::StepReport& report, Index step, double loss) const;

  AmpOptions options_;
  std::optional<amp::GradScaler> scaler_;
  Index skipped_ = 0;  // in a row
};

}  // namespace hone::amp
