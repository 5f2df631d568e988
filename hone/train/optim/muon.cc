// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/muon.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "hone/core/text_format.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/state_tensors.h"

namespace hone::optim {
namespace {

void check_options(const MuonOptions& o) {
  kernels::check_at_least_zero("Muon", "lr", o.lr());
  kernels::check_decay("Muon", "momentum", o.momentum());
  HONE_CHECK(o.ns_steps() >= 1 && o.ns_steps() < 100, "Muon", "ns_steps from 1 to 99",
             o.ns_steps());
  const auto [a, b, c] = o.ns_coefficients();
  HONE_CHECK(std::isfinite(a) && std::isfinite(b) && std::isfinite(c), "Muon",
             "finite ns_coefficients", concat(a, ", ", b, ", ", c));
  kernels::check_at_least_zero("Muon", "eps", o.eps());
}

// Rows and columns of a parameter as a matrix.
struct MatrixShape {
  Index rows, cols;
};
MatrixShape shape_of(const torch::Tensor& param) {
  return {param.size(0), param.numel() / std::max<Index>(param.size(0), 1)};
}

double rate_of(const torch::Tensor& param, const MuonOptions& o) {
  const auto [height, width] = shape_of(param);
  const auto rows = static_cast<double>(height), cols = static_cast<double>(width);
  if (o.adjust_lr() == MuonAdjust::MatchRmsAdamW) {
    return o.lr() * 0.2 * std::sqrt(std::max(rows, cols));
  }
  return o.lr() * std::sqrt(std::max(1.0, rows / cols));
}

// p <- (1 - ηλ) p - η r X from the momentum of this step and the scaled gradient, in fp32.
void apply_update(torch::Tensor param, const torch::Tensor& grad, const torch::Tensor& momentum,
                  const MuonOptions& o) {
  if (param.numel() == 0) return;
  const torch::Tensor wide = momentum.to(at::kFloat);
  const torch::Tensor update = o.nesterov() ? grad.lerp(wide, o.momentum()) : wide;
  param.mul_(1 - o.lr() * o.weight_decay());
  param.add_(orthogonalize(update.flatten(1), o).reshape(param.sizes()), -rate_of(param, o));
}

const MuonOptions& options_of(const torch::optim::OptimizerParamGroup& group) {
  return options_as<MuonOptions>("Muon", group.options());
}

// Fails now if the updates could run out of memory after the momentum was stepped: takes, and gives
// back to LibTorch's allocator, what the largest one needs at a time.
void reserve_update(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  Index most = 0, largest = 0;
  c10::Device device = at::kCPU;
  for_each_parameter(groups, [&](std::size_t g, const torch::Tensor& param, Index index) {
    if (!param.grad().defined() || options_of(groups[g]).sign_update()) return;
    const auto [rows, cols] = shape_of(param);
    const Index floats = muon_workspace(rows, cols);
    if (floats <= most) return;
    most = floats, largest = index, device = param.device();
  });
  try {
    at::empty({most}, at::TensorOptions(at::kFloat).device(device));
  } catch (const c10::Error&) {
    fail(
        ErrorCategory::Resource, "Muon",
        concat(format_bytes(most * Index{sizeof(float)}), " for the update of parameter ", largest),
        "less free memory");
  }
}

// Stochastically, as parameters of other rules: the small updates would be lost.
void store_bf16(const torch::Tensor& values, std::uint32_t key, torch::Tensor param) {
  const torch::Tensor dense = values.contiguous();
  const torch::Tensor rounded = at::empty(dense.sizes(), dense.options().dtype(at::kBFloat16));
  kernels::encode_chunk(dense.data_ptr<float>(), {.key = key},
                        {Dtype::BFloat16, rounded.data_ptr(), nullptr, dense.numel()});
  param.copy_(rounded);
}

LionOptions lion_options(const MuonOptions& o) {
  return LionOptions(o.lr())
      .betas({o.momentum(), o.momentum()})
      .weight_decay(o.weight_decay())
      .maximize(o.maximize());
}

}  // namespace

Index muon_workspace(Index rows, Index cols) {
  constexpr Index kCopies = 9, kGrams = 3;  // of the matrix in fp32; of the product with itself
  const Index narrow = std::min(rows, cols);
  return kCopies * rows * cols + kGrams * narrow * narrow;
}

void MuonOptions::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue stored;
  const bool earlier = archive.try_read("adjust_lr", stored);  // what earlier versions called it
  visit_fields(*this, [&](const char* key, auto& field) {
    const bool renamed = earlier && std::string_view(key) == "adjust_lr_fn";
    const bool required = std::string_view(key) != "sign_update";  // earlier versions had none
    FieldReader{archive, required}(renamed ? "adjust_lr" : key, field);
  });
  set_fields_ = kAllFields;
}

kernels::LionGroup MuonRule::group_of(const Options& options) {
  check_options(options);
  if (options.sign_update()) return LionRule::group_of(lion_options(options));
  return {.lr = 0,
          .beta1 = 0,
          .beta2 = options.momentum(),
          .weight_decay = 0,
          .maximize = options.maximize()};
}
StateFields MuonRule::fields_of(State& state) {
  return {.step = &state.step(), .momentum = &state.momentum_buffer()};
}
void MuonRule::step_for_loop(ChainLists& lists, const Options& options) {
  if (options.sign_update()) return LionRule::step_for_loop(lists, lion_options(options));
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    const torch::Tensor grad = options.maximize() ? -lists.grads[i] : lists.grads[i];
    lists.momentum[i].lerp_(grad, 1 - options.momentum());
    apply_update(lists.params[i], grad, lists.momentum[i], options);
  }
}
void MuonRule::step_foreach(ChainLists& lists, const Options& options) {
  if (options.sign_update()) return LionRule::step_foreach(lists, lion_options(options));
  const std::vector<torch::Tensor> grads =
      options.maximize() ? at::_foreach_neg(lists.grads) : lists.grads;
  at::_foreach_lerp_(lists.momentum, grads, 1 - options.momentum());
  for (std::size_t i = 0; i < grads.size(); ++i) {
    apply_update(lists.params[i], grads[i], lists.momentum[i], options);
  }
}

template class RuleOptimizer<MuonRule>;

Muon::Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups, MuonOptions defaults)
    : RuleOptimizer(groups, std::move(defaults)) {
  for (const auto& group : param_groups_) Muon::check_group(group);
}

void Muon::check_group(const torch::optim::OptimizerParamGroup& group) const {
  RuleOptimizer::check_group(group);
  if (typed(group.options()).sign_update()) return;
  for (std::size_t i = 0; i < group.params().size(); ++i) {
    const torch::Tensor& param = group.params()[i];
    HONE_CHECK(param.dim() >= 2, name(), concat("a matrix as parameter ", i, " of the group"),
               concat(param.dim(), " dimensions"));
  }
}

std::unique_ptr<Muon::Options> Muon::with_json(const Options& now, const Json& json,
                                               const std::string& where) const {
  Json group = json;
  const auto earlier = json.find("adjust_lr");
  if (earlier != json.end() && !json.contains("adjust_lr_fn")) group["adjust_lr_fn"] = *earlier;
  const auto function = group.find("adjust_lr_fn");
  if (function != group.end() && function->is_null()) *function = "original";
  return RuleOptimizer::with_json(now, group, where);
}

StepReport Muon::step_fused(const FusedTensors& tensors, const StepControl& control) {
  if (control.checked) fail_unsupported(name(), "a step without check", "one with it");
  // What the update would fail at after the momentum was stepped.
  if (control.grad != GradWriteBack::None) tensors.plan.check_gradients_writable();
  for (const auto& group : param_groups_) check_group(group);
  for_each_parameter(param_groups_, [&](std::size_t, const torch::Tensor& param, Index) {
    if (!param.grad().defined()) return;
    check_in_place(name(), "parameter", param);
    if (control.grad != GradWriteBack::None) check_in_place(name(), "gradient", param.grad());
  });
  reserve_update(param_groups_);
  StepControl momentum_only = control;
  momentum_only.grad = GradWriteBack::None;  // the update still reads the gradients
  const StepReport report = RuleOptimizer::step_fused(tensors, momentum_only);
  if (!report.stepped) return report;
  const double scale = control.inv_scale * report.clip_coef;
  for_each_parameter(param_groups_, [&](std::size_t g, const torch::Tensor& param, Index index) {
    const torch::Tensor& grad = param.grad();
    if (!grad.defined()) return;
    const MuonOptions& o = typed(param_groups_[g].options());
    if (o.sign_update()) return write_back(grad, scale, control);
    const auto& state = static_cast<const MuonParamState&>(*state_.at(param.unsafeGetTensorImpl()));
    const torch::Tensor& kept = state.momentum_buffer();
    const bool coded = kept.scalar_type() == at::kChar;
    const torch::Tensor stored = param.detach(), values = stored.to(at::kFloat);
    // The kernel's average has the parameter as it was before the update.
    const torch::Tensor& average = state.average();
    const bool averages = control.ema_decay > 0 && average.defined();
    if (averages) average.add_(values, control.ema_decay - 1);
    // In fp32: fp16 loses what unscaling makes small.
    const double factor = o.maximize() ? -scale : scale;
    apply_update(values, limited(grad.to(at::kFloat) * factor, control),
                 coded ? decode_moment(kept, state.momentum_scale()) : kept, o);
    if (stored.scalar_type() == at::kBFloat16) {
      store_bf16(values,
                 kernels::mix_rounding_key(control.rounding_seed, rounding_key_of(index),
                                           state.step(), static_cast<int>(kernels::Slot::Param)),
                 stored);
    }
    if (averages) average.add_(values, 1 - control.ema_decay);
    write_back(grad, scale, control);
  });
  return report;
}

torch::Tensor orthogonalize(const torch::Tensor& update, const MuonOptions& options) {
  const auto [a, b, c] = options.ns_coefficients();
  torch::Tensor x = options.bf16_iteration() ? update.to(at::kBFloat16) : update;
  const bool tall = x.size(0) > x.size(1);
  if (tall) x = x.t();
  x = x / x.norm().clamp_min(options.eps());
  for (std::int64_t step = 0; step < options.ns_steps(); ++step) {
    const torch::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a, 1);
  }
  return tall ? x.t() : x;
}

}  // namespace hone::optim
