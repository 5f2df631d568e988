// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>

#include "hone/core/json_io.h"
#include "hone/train/amp/autocast_guard.h"
#include "hone/train/amp/grad_scaler.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::amp {

// What forward passes multiply in, and whether losses are scaled.
struct AmpOptions {
  at::ScalarType precision = at::kFloat;  // kBFloat16 and kHalf: an autocast scope of the CPU
  std::optional<amp::GradScalerOptions> scaler;
};

// A training step's share of mixed precision. Weights, gradients and state stay fp32; without
// AmpOptions nothing here changes a bit.
class MixedPrecision {
 public:
  // Steps skipped in a row until a run is given up: 65536 halved as often is 2^-9, where no
  // gradient of a sane model overflows.
  static constexpr Index kMostSkips = 25;

  explicit MixedPrecision(const AmpOptions& options);

  bool scales() const { return scaler_.has_value(); }
  // In force; nothing where losses are not scaled.
  std::optional<double> loss_scale() const;

  // For the scope of a forward pass.
  amp::AutocastGuard autocast() const;
  torch::Tensor scale(const torch::Tensor& loss);
  // The optimizer's step, with the gradients unscaled. A scaler's update follows it.
  // Error{Internal} naming `step` (from 0) when a gradient is not finite: at once without a scaler,
  // else after kMostSkips steps in a row.
  optim::StepReport step(optim::MultiTensorOptimizer& optimizer, optim::StepControl control,
                         Index step, double loss);

  // The scaler's, null without one.
  Json state_dict() const;
  // Error{InvalidArgument} when one has a scaler and the other has not.
  void load_state_dict(const Json& state);

 private:
  at::ScalarType precision_;
  std::optional<amp::GradScaler> scaler_;
  Index skipped_ = 0;  // in a row
};

}  // namespace hone::amp
