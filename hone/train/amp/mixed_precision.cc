// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/mixed_precision.h"

#include "hone/core/check.h"

namespace hone::amp {

MixedPrecision::MixedPrecision(const AmpOptions& options) : precision_(options.precision) {
  if (options.scaler) scaler_.emplace(*options.scaler);
}

std::optional<double> MixedPrecision::loss_scale() const {
  return scaler_ ? std::optional(scaler_->get_scale()) : std::nullopt;
}

amp::AutocastGuard MixedPrecision::autocast() const {
  return amp::AutocastGuard(at::kCPU, precision_, precision_ != at::kFloat);
}

torch::Tensor MixedPrecision::scale(const torch::Tensor& loss) {
  return scaler_ ? scaler_->scale(loss) : loss;
}

optim::StepReport MixedPrecision::step(optim::MultiTensorOptimizer& optimizer,
                                       optim::StepControl control, Index step, double loss) {
  control.skip_nonfinite = true;
  optim::StepReport report;
  if (scaler_) {
    report = scaler_->step(optimizer, control);
    scaler_->update();
  } else {
    report = optimizer.step_with(control);
  }
  skipped_ = report.stepped ? 0 : skipped_ + 1;
  if (skipped_ == 0 || (scaler_ && skipped_ < kMostSkips)) return report;
  const std::string scales =
      scaler_ ? concat(" in ", skipped_, " steps in a row, the loss scale now ", *loss_scale())
              : "";
  fail(ErrorCategory::Internal, concat("train step ", step + 1), "finite gradients",
       concat("loss ", loss, " and a gradient that is not finite (parameter ",
              report.first_nonfinite_tensor, ")", scales, ": lower lr.peak"));
}

Json MixedPrecision::state_dict() const { return scaler_ ? scaler_->state_dict() : Json(); }

void MixedPrecision::load_state_dict(const Json& state) {
  HONE_CHECK(state.is_null() != scaler_.has_value(), "resume",
             scaler_ ? "a checkpoint with a loss scale" : "a checkpoint without a loss scale",
             state.is_null() ? "none" : "one");
  if (scaler_) scaler_->load_state_dict(state);
}

}  // namespace hone::amp
