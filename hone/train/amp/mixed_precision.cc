// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/mixed_precision.h"

#include <cmath>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::amp {

namespace {

std::string describe_fault(const optim::StepReport& report, double loss) {
  const char* what = std::isfinite(report.grad_norm) ? "A new value" : "The gradient";
  return concat(what, " of parameter ", report.first_nonfinite_tensor,
                " is not finite (the loss is ", loss, ")");
}

}  // namespace

MixedPrecision::MixedPrecision(const AmpOptions& options) : options_(options) {
  if (options.scaler) scaler_.emplace(*options.scaler);
}

std::optional<double> MixedPrecision::loss_scale() const {
  return scaler_ ? std::optional(scaler_->get_scale()) : std::nullopt;
}

amp::AutocastGuard MixedPrecision::autocast() const {
  return amp::AutocastGuard(options_.device, options_.precision, options_.precision != at::kFloat);
}

torch::Tensor MixedPrecision::scale(const torch::Tensor& loss) {
  return scaler_ ? scaler_->scale(loss) : loss;
}

PrecisionStep MixedPrecision::step(optim::MultiTensorOptimizer& optimizer,
                                   optim::StepControl control, Index step,
                                   const std::function<double()>& loss) {
  control.skip_nonfinite = true;
  PrecisionStep done;
  if (scaler_) {
    done.report = scaler_->step(optimizer, control);
    done.update = scaler_->update();
    done.found_inf = done.update->found_inf;
    done.growth_tracker = scaler_->growth_tracker();
  } else {
    done.report = optimizer.step_with(control);
    done.found_inf = !std::isfinite(done.report.grad_norm);
  }
  skipped_ = done.report.stepped ? 0 : skipped_ + 1;
  if (!done.report.stepped) check_skip(done.report, step, loss());
  return done;
}

void MixedPrecision::check_skip(const optim::StepReport& report, Index step, double loss) const {
  const std::string place = concat("train step ", step + 1), fault = describe_fault(report, loss);
  if (!skips()) {
    fail(ErrorCategory::Internal, place,
         concat(fault, "; lower lr.peak, or skip such steps by trainer.skip_nonfinite."));
  }
  if (skipped_ >= options_.max_skipped_steps) {
    fail(ErrorCategory::Internal, place,
         concat(fault, ", as in all of the last ", skipped_, " steps",
                scaler_ ? concat(", with a loss scale of ", *loss_scale(), " now") : "",
                "; lower lr.peak, or allow more such steps by trainer.max_skipped_steps."));
  }
  // With a scaler, skipped steps are normal: that is how it finds its scale.
  if (!scaler_) log_warning(concat('[', place, "] ", fault, "; the step is skipped"));
}

Json MixedPrecision::state_dict() const { return scaler_ ? scaler_->state_dict() : Json(); }

void MixedPrecision::load_state_dict(const Json& state) {
  HONE_CHECK(state.is_null() != scaler_.has_value(), "resume",
             scaler_ ? "a checkpoint with a loss scale" : "a checkpoint without a loss scale",
             state.is_null() ? "none" : "one");
  if (scaler_) scaler_->load_state_dict(state);
}

}  // namespace hone::amp
