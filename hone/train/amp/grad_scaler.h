// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <limits>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::amp {

using kernels::GradWriteBack;
using kernels::StepControl;
using kernels::StepReport;

// The first five fields match torch.amp.GradScaler, including the defaults.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     // above 1
  double backoff_factor = 0.5;  // between 0 and 1
  Index growth_interval = 2000;
  bool enabled = true;  // false: scale() returns the loss, and step() only applies its control
  // Not in Python.
  bool dynamic = true;  // false: the scale never changes; overflow steps are still skipped
  // The scale first backs off at this overflow step, counted since it last grew. After that, every
  // overflow step lowers it until it has grown again.
  Index hysteresis = 1;
  double min_scale = 0, max_scale = std::numeric_limits<float>::max();
};

// The result of one iteration, as update() returns it.
struct ScaleUpdate {
  double scale = 1;  // during this iteration
  double next_scale = 1;
  bool found_inf = false;  // in a gradient of any optimizer
  bool stepped = false;    // every optimizer that was unscaled or stepped did step
};

// Loss scaling with the semantics of Python's torch.amp.GradScaler:
//   scaler.scale(loss).backward();  scaler.step(optimizer);  scaler.update();
// The scale is an fp32 number and matches the scale of Python bit for bit. The order of calls for
// each optimizer is [unscale_], step, update. Any other order throws Error{InvalidArgument} that
// names the call.
//
// hone's optimizers run the whole step in one call of step_with: the finite check, unscaling,
// clipping and the update share its fused passes. Gradients stay unchanged unless `control.grad`
// says otherwise. Other torch::optim::Optimizers first get their gradients unscaled in one sweep. A
// step with an inf or NaN gradient changes no parameter and no state.
//
// bf16 has the range of fp32 and needs no scaler.
class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});

  // loss · scale.
  torch::Tensor scale(const torch::Tensor& loss);
  // Returns each output · scale, with the type and device of the output.
  std::vector<torch::Tensor> scale(const std::vector<torch::Tensor>& outputs);

  // Divides the gradients by the scale, so that they can be inspected or clipped before step().
  // That step() does not divide again. Records inf and NaN. May be called once per optimizer and
  // iteration. Throws Error{Unsupported} for fp16 gradients, where small unscaled values would be
  // lost.
  void unscale_(torch::optim::Optimizer& optimizer);

  // Steps unless a gradient is inf or NaN. `control` is as in MultiTensorOptimizer::step_with. For
  // example,
  //   scaler.step(optimizer, {.clip_norm = 1, .grad = GradWriteBack::Zero});
  // unscales, clips, steps and clears. control.inv_scale multiplies 1 / scale (1 / accumulated
  // weight).
  //
  // hone's optimizers accept fp16 gradients and unscale them in fp32. Other optimizers do not
  // support fp16 gradients, `checked` or `ema_decay`, and GradWriteBack::None leaves their
  // gradients unscaled and clipped.
  StepReport step(torch::optim::Optimizer& optimizer, const StepControl& control = {});

  // Ends the iteration. If any optimizer found inf or NaN: scale ← backoff · scale, tracker ← 0.
  // Otherwise tracker ← tracker + 1. When the tracker reaches the growth interval: scale ← growth ·
  // scale if that is finite, and tracker ← 0.
  ScaleUpdate update();
  // Ends the iteration and sets this scale.
  ScaleUpdate update(double new_scale);

  double get_scale() const { return options_.enabled ? double{scale_} : 1.0; }
  Index growth_tracker() const { return growth_tracker_; }
  const GradScalerOptions& options() const { return options_; }
  // How often the scaler itself has swept over gradients, outside an optimizer's fused step.
  Index gradient_sweeps() const { return gradient_sweeps_; }

  // Python's keys: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker; with
  // hysteresis also _hysteresis_tracker, which Python ignores. Empty when disabled.
  Json state_dict() const;
  // Loads such a state, including one that Python saved. Throws Error{InvalidArgument} that names
  // the key, and changes nothing, if a key is missing or out of range. Does nothing when disabled.
  void load_state_dict(const Json& state);

 private:
  enum class Stage { Ready, Unscaled, Stepped };
  struct OptimizerState {
    Stage stage = Stage::Ready;
    bool found_inf = false, stepped = false;
    Index first_nonfinite = -1;
  };

  void require_scaled(std::string_view call) const;
  double inv_scale(std::string_view call) const;
  void unscale(std::string_view call, torch::optim::Optimizer& optimizer, OptimizerState& state);
  StepReport take_step(torch::optim::Optimizer& optimizer, const StepControl& control,
                       OptimizerState& state);
  StepReport step_stock(torch::optim::Optimizer& optimizer, const StepControl& control, bool check,
                        OptimizerState& state);
  ScaleUpdate finish(float next_scale);
  float next_scale(bool found_inf);
  void warn_if_small();

  GradScalerOptions options_;
  float scale_;
  Index growth_tracker_ = 0, hysteresis_tracker_;
  Index gradient_sweeps_ = 0;
  bool scaled_ = false, warned_ = false;
  std::unordered_map<const torch::optim::Optimizer*, OptimizerState> states_;
};

}  // namespace hone::amp
