// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/grad_scaler.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/train/amp/unscale.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::amp {
namespace {

constexpr std::string_view kOp = "GradScaler", kScale = "GradScaler.scale",
                           kUnscale = "GradScaler.unscale_", kStep = "GradScaler.step",
                           kUpdate = "GradScaler.update", kLoad = "GradScaler.load_state_dict";

// A positive scale that is finite in fp32.
void check_scale(std::string_view op, std::string_view what, double scale) {
  const auto held = static_cast<float>(scale);
  HONE_CHECK(std::isfinite(held) && held > 0, op, concat("a positive fp32 number as ", what),
             scale);
}

void check_factors(std::string_view op, const GradScalerOptions& options) {
  HONE_CHECK(options.growth_factor > 1 && std::isfinite(options.growth_factor), op,
             "a growth_factor above 1", options.growth_factor);
  HONE_CHECK(options.backoff_factor > 0 && options.backoff_factor < 1, op,
             "a backoff_factor between 0 and 1", options.backoff_factor);
  HONE_CHECK(options.growth_interval >= 1, op, "a growth_interval of at least 1",
             options.growth_interval);
}

double number_of(const Json& state, const char* key) {
  HONE_CHECK(state.contains(key) && state[key].is_number(), kLoad, concat("a number as ", key),
             state.contains(key) ? state[key].dump() : "none");
  return state[key].get<double>();
}

Index count_of(const Json& state, const char* key) {
  const double number = number_of(state, key);
  HONE_CHECK(number >= 0 && number <= 0x1p53 && number == std::floor(number), kLoad,
             concat("a count as ", key), number);
  return static_cast<Index>(number);
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options)
    : options_(options),
      scale_(static_cast<float>(options.init_scale)),
      hysteresis_tracker_(options.hysteresis) {
  check_scale(kOp, "init_scale", options.init_scale);
  check_factors(kOp, options);
  HONE_CHECK(options.hysteresis >= 1, kOp, "a hysteresis of at least 1", options.hysteresis);
  HONE_CHECK(options.min_scale >= 0 && options.min_scale <= options.init_scale &&
                 options.init_scale <= options.max_scale,
             kOp, "min_scale ≤ init_scale ≤ max_scale",
             concat(options.min_scale, ", ", options.init_scale, ", ", options.max_scale));
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) {
  HONE_CHECK(loss.defined(), kScale, "a defined tensor", "an undefined one");
  if (!options_.enabled) return loss;
  scaled_ = true;
  return loss * get_scale();
}

std::vector<torch::Tensor> GradScaler::scale(const std::vector<torch::Tensor>& outputs) {
  std::vector<torch::Tensor> scaled;
  for (const torch::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::require_scaled(std::string_view call) const {
  HONE_CHECK(scaled_, call, "scale(loss) called before", "no call of it so far");
}

double GradScaler::inv_scale(std::string_view call) const {
  const auto inverse = static_cast<float>(1.0 / double{scale_});  // as Python rounds it
  HONE_CHECK(std::isfinite(inverse) && inverse > 0, call,
             "a loss scale whose inverse fp32 holds (gradients overflow at any scale? see "
             "min_scale)",
             scale_);
  return inverse;
}

void GradScaler::unscale(std::string_view call, torch::optim::Optimizer& optimizer,
                         OptimizerState& state) {
  const UnscaleResult result = unscale_gradients(call, optimizer, inv_scale(call), false);
  ++gradient_sweeps_;
  state.found_inf = result.found_inf;
  state.first_nonfinite = result.first_nonfinite;
  state.stage = Stage::Unscaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scaled(kUnscale);
  OptimizerState& state = states_[&optimizer];
  HONE_CHECK(state.stage != Stage::Unscaled, kUnscale, "one call per optimizer and update()",
             "a second unscale_()");
  HONE_CHECK(state.stage != Stage::Stepped, kUnscale, "the call before step()", "it after step()");
  unscale(kUnscale, optimizer, state);
}

// control.inv_scale holds all that is left to unscale.
StepReport GradScaler::step_stock(torch::optim::Optimizer& optimizer, const StepControl& control,
                                  bool check, OptimizerState& state) {
  if (control.checked) {
    fail_unsupported(kStep, "one of hone's optimizers for a checked step", "another one");
  }
  if (control.ema_decay > 0) {
    fail_unsupported(kStep, "one of hone's optimizers for ema_decay", "another one");
  }
  kernels::check_step_control(kStep, control);
  StepReport report;
  const bool clips = control.clip_norm > 0, squares = control.norm_type == 2;
  if (check || clips || control.inv_scale != 1) {
    const UnscaleResult result =
        unscale_gradients(kStep, optimizer, control.inv_scale, clips && squares);
    ++gradient_sweeps_;
    state.stage = Stage::Unscaled;  // if the optimizer throws, a retry does not divide again
    report.grad_norm = result.norm;
    report.first_nonfinite_tensor = result.first_nonfinite;
    report.stepped = !(check && result.found_inf);
    if (!report.stepped) return report;
  }
  if (clips && !squares) {
    report.grad_norm = measure_norm(kStep, optimizer, control.norm_type);
    ++gradient_sweeps_;
  }
  if (control.clip_value > 0) {
    limit_gradients(kStep, optimizer, control.clip_value);
    ++gradient_sweeps_;
  }
  if (clips) report.clip_coef = kernels::clip_coefficient(control.clip_norm, report.grad_norm);
  if (report.clip_coef != 1) {
    unscale_gradients(kStep, optimizer, report.clip_coef, false);
    ++gradient_sweeps_;
  }
  optimizer.step();
  if (control.grad == GradWriteBack::Zero) optimizer.zero_grad(/*set_to_none=*/false);
  return report;
}

StepReport GradScaler::take_step(torch::optim::Optimizer& optimizer, const StepControl& control,
                                 OptimizerState& state) {
  if (state.stage == Stage::Unscaled && state.found_inf) {
    StepReport report;
    report.stepped = false;
    report.first_nonfinite_tensor = state.first_nonfinite;
    return report;
  }
  StepControl merged = control;
  const bool check = state.stage == Stage::Ready || control.skip_nonfinite;
  if (state.stage == Stage::Ready) merged.inv_scale *= inv_scale(kStep);
  auto* own = dynamic_cast<optim::MultiTensorOptimizer*>(&optimizer);
  if (own == nullptr) return step_stock(optimizer, merged, check, state);
  if (options_.enabled) check_gradients(kStep, optimizer);
  merged.skip_nonfinite = check;
  return own->step_with(merged);
}

StepReport GradScaler::step(torch::optim::Optimizer& optimizer, const StepControl& control) {
  if (!options_.enabled) {
    OptimizerState unscaled{Stage::Unscaled};
    return take_step(optimizer, control, unscaled);
  }
  require_scaled(kStep);
  OptimizerState& state = states_[&optimizer];
  HONE_CHECK(state.stage != Stage::Stepped, kStep, "one call per optimizer and update()",
             "a second step()");
  const StepReport report = take_step(optimizer, control, state);
  state.found_inf = state.found_inf || (!report.stepped && !report.stopped_by_check);
  state.stepped = report.stepped;
  state.stage = Stage::Stepped;
  return report;
}

float GradScaler::next_scale(bool found_inf) {
  if (!options_.dynamic) return scale_;
  if (found_inf) {
    growth_tracker_ = 0;
    if (--hysteresis_tracker_ > 0) return scale_;
    hysteresis_tracker_ = 0;
    const auto smaller = static_cast<float>(double{scale_} * options_.backoff_factor);
    return std::max(smaller, static_cast<float>(options_.min_scale));
  }
  if (++growth_tracker_ != options_.growth_interval) return scale_;
  growth_tracker_ = 0;
  hysteresis_tracker_ = options_.hysteresis;
  const auto larger = static_cast<float>(double{scale_} * options_.growth_factor);
  if (!std::isfinite(larger)) return scale_;
  return std::min(larger, static_cast<float>(options_.max_scale));
}

ScaleUpdate GradScaler::finish(float next) {
  ScaleUpdate done{scale_, next, false, true};
  for (const auto& [optimizer, state] : states_) {
    if (state.stage == Stage::Ready) continue;  // a call that failed
    done.found_inf = done.found_inf || state.found_inf;
    done.stepped = done.stepped && state.stepped;
  }
  scale_ = next;
  states_.clear();
  warn_if_small();
  return done;
}

void GradScaler::warn_if_small() {
  if (warned_ || scale_ >= 1) return;
  warned_ = true;
  log_warning(concat("GradScaler: the loss scale fell to ", scale_,
                     ": gradients overflow without any scaling; look for a diverging loss"));
}

ScaleUpdate GradScaler::update() {
  if (!options_.enabled) return {};
  require_scaled(kUpdate);
  bool checked = false, found_inf = false;
  for (const auto& [optimizer, state] : states_) {
    checked = checked || state.stage != Stage::Ready;
    found_inf = found_inf || state.found_inf;
  }
  HONE_CHECK(checked, kUpdate, "step() or unscale_() since the last update()", "neither");
  return finish(next_scale(found_inf));
}

ScaleUpdate GradScaler::update(double new_scale) {
  if (!options_.enabled) return {};
  require_scaled(kUpdate);
  check_scale(kUpdate, "new_scale", new_scale);
  return finish(static_cast<float>(new_scale));
}

Json GradScaler::state_dict() const {
  if (!options_.enabled) return Json::object();
  Json state{{"scale", get_scale()},
             {"growth_factor", options_.growth_factor},
             {"backoff_factor", options_.backoff_factor},
             {"growth_interval", options_.growth_interval},
             {"_growth_tracker", growth_tracker_}};
  if (options_.hysteresis > 1) state["_hysteresis_tracker"] = hysteresis_tracker_;
  return state;
}

void GradScaler::load_state_dict(const Json& state) {
  if (!options_.enabled) return;
  HONE_CHECK(state.is_object() && !state.empty(), kLoad, "the state of an enabled scaler",
             state.dump());
  GradScalerOptions loaded = options_;
  const double scale = number_of(state, "scale");
  loaded.growth_factor = number_of(state, "growth_factor");
  loaded.backoff_factor = number_of(state, "backoff_factor");
  loaded.growth_interval = count_of(state, "growth_interval");
  const Index growth_tracker = count_of(state, "_growth_tracker");
  const Index hysteresis_tracker = state.contains("_hysteresis_tracker")
                                       ? count_of(state, "_hysteresis_tracker")
                                       : options_.hysteresis;
  check_scale(kLoad, "scale", scale);
  check_factors(kLoad, loaded);
  options_ = loaded;
  scale_ = static_cast<float>(scale);
  growth_tracker_ = growth_tracker;
  hysteresis_tracker_ = std::min(hysteresis_tracker, options_.hysteresis);
}

}  // namespace hone::amp
