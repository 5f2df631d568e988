// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>

#include "hone/core/json_io.h"
#include "hone/train/amp/amp_config.h"
#include "hone/train/amp/autocast_guard.h"
#include "hone/train/amp/grad_scaler.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::amp {

// What forward passes multiply in, whether losses are scaled, and what becomes of a step whose
// gradient is not finite.
struct AmpOptions {
  at::ScalarType precision = at::kFloat;  // kBFloat16 and kHalf: an autocast scope of the CPU
  std::optional<amp::GradScalerOptions> scaler;
  bool skip_nonfinite = false;                 // skips such a step; with a scaler it always does
  Index max_skipped_steps = kMaxSkippedSteps;  // as many in a row end the run
};

// What became of an optimizer step. The last two are empty without a scaler.
struct PrecisionStep {
  optim::StepReport report;
  bool found_inf = false;  // in a gradient
  std::optional<ScaleUpdate> update;
  std::optional<Index> growth_tracker;  // after the update
};

// A training step's share of mixed precision. Weights, gradients and state stay fp32; without
// AmpOptions nothing here changes a bit.
class MixedPrecision {
 public:
  explicit MixedPrecision(const AmpOptions& options);

  // Is a step skipped whose gradient is not finite?
  bool skips() const { return scaler_.has_value() || options_.skip_nonfinite; }
  // In force; nothing where losses are not scaled.
  std::optional<double> loss_scale() const;

  // For the scope of a forward pass.
  amp::AutocastGuard autocast() const;
  torch::Tensor scale(const torch::Tensor& loss);
  // The optimizer's step, with the gradients unscaled. A scaler's update follows it. A step whose
  // gradient is not finite changes nothing. Error{Internal} naming `step` (from 0) where it may not
  // be skipped, and after max_skipped_steps in a row.
  PrecisionStep step(optim::MultiTensorOptimizer& optimizer, optim::StepControl control, Index step,
                     double loss);

  // The scaler's, null without one.
  Json state_dict() const;
  // Error{InvalidArgument} when one has a scaler and the other has not.
  void load_state_dict(const Json& state);

 private:
  // Error{Internal} where the step may not be skipped.
  void check_skip(const optim::StepReport& report, Index step, double loss) const;

  AmpOptions options_;
  std::optional<amp::GradScaler> scaler_;
  Index skipped_ = 0;  // in a row
};

}  // namespace hone::amp
