// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/multi_tensor_optimizer.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/kernels/multi_tensor/schedule/grad_norm.h"
#include "hone/train/interop.h"
#include "hone/train/optim/fused_cache.h"
#include "hone/train/optim/state_tensors.h"

namespace hone::optim {
namespace {

using kernels::Slot;

std::string describe(Index parameter) { return concat("parameter ", parameter); }

// Error{Unsupported} unless this is a floating-point tensor whose values some implementation can
// step.
void check_usable(const std::string& op, const torch::Tensor& tensor, const std::string& what,
                  bool may_be_half) {
  const at::ScalarType type = tensor.scalar_type();
  if (tensor.layout() != at::kStrided) {
    fail_unsupported(op, concat("a dense ", what), concat("layout ", c10::str(tensor.layout())));
  }
  if (tensor.is_complex()) fail_unsupported(op, concat("a real ", what), "complex numbers");
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    fail_unsupported(op, concat("a CPU or CUDA ", what), tensor.device().str());
  }
  if (tensor.is_neg()) {
    fail_unsupported(op, concat("memory with the values of ", what),
                     "a view that negates (resolve_neg() writes them)");
  }
  if (type == at::kFloat || type == at::kBFloat16 || (may_be_half && type == at::kHalf)) return;
  fail_unsupported(op, concat(may_be_half ? "fp32, bf16 or fp16" : "fp32 or bf16", " in ", what),
                   at::toString(type));
}

using Groups = std::vector<torch::optim::OptimizerParamGroup>;

constexpr std::size_t kMostGroups = std::size_t{1} << 16;  // plans count them in 16 bits

void check_parameters(const std::string& op, const Groups& groups) {
  HONE_CHECK(!groups.empty(), op, "at least one parameter group", "none");
  HONE_CHECK(groups.size() <= kMostGroups, op, concat("at most ", kMostGroups, " parameter groups"),
             groups.size());
  std::unordered_set<const void*> seen;
  c10::Device device = at::kCPU;
  for_each_parameter(groups, [&](std::size_t, const torch::Tensor& param, Index number) {
    const std::string label = describe(number);
    HONE_CHECK(param.defined(), op, concat("a tensor as ", label), "an undefined one");
    check_usable(op, param, label, false);
    if (number == 0) device = param.device();
    HONE_CHECK(param.device() == device, op,
               concat("all parameters on one device, ", label, " on ", device.str()),
               param.device().str());
    HONE_CHECK(at::has_internal_overlap(param) != at::MemOverlap::Yes, op,
               concat("memory of its own for each element of ", label), "an expanded view");
    HONE_CHECK(param.is_leaf(), op, concat("a leaf as ", label), "a result of other tensors");
    HONE_CHECK(seen.insert(param.unsafeGetTensorImpl()).second, op, concat(label, " listed once"),
               "it twice");
  });
}

// Gradients that operators write to must be one parameter's each.
template <class Actives>
void check_own_gradients(const std::string& op, const Actives& active) {
  std::unordered_set<const void*> seen;
  for (const auto& a : active) {
    const bool own = a.grad.numel() == 0 || seen.insert(a.grad.const_data_ptr()).second;
    HONE_CHECK(own, op, concat("a gradient of its own for ", describe(a.parameter)),
               "memory of another's");
    check_in_place(op, concat("gradient of ", describe(a.parameter)), a.grad);
  }
}

// What a made state is kept in; options count when it is made.
StateDtype dtype_of_state(const StateFields& fields) {
  for (const torch::Tensor* moment : {fields.momentum, fields.second_moment}) {
    if (moment == nullptr || !moment->defined()) continue;
    if (moment->scalar_type() == at::kBFloat16) return StateDtype::BFloat16;
    return moment->scalar_type() == at::kFloat ? StateDtype::Float32 : StateDtype::Block8;
  }
  return StateDtype::Float32;
}

// A parameter may change its memory format, and its state then does too; not its shape. Narrow
// state becomes `wanted` where that is fp32: it takes dense memory in one order.
void follow_layout(const std::string& op, const std::string& label, const torch::Tensor& param,
                   at::ScalarType wanted, torch::Tensor& state, torch::Tensor& scale) {
  HONE_CHECK(state.sizes().equals(param.sizes()), op,
             concat(label, " in the shape of its state, ", c10::str(state.sizes())),
             c10::str(param.sizes()));
  const at::ScalarType now = state.scalar_type();
  const bool widen = wanted == at::kFloat && now != at::kFloat;
  if (!widen && same_layout(state, param)) return;
  const torch::Tensor values = now == at::kFloat ? state : decode_moment(state, scale);
  torch::Tensor made, made_scale;
  encode_moment(values, param, widen ? at::kFloat : now, made, made_scale);
  state = made;
  scale = made_scale;
}

}  // namespace

MultiTensorOptimizer::MultiTensorOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                                           std::unique_ptr<Options> defaults, std::string name)
    : Optimizer((check_parameters(name, groups), std::move(groups)), std::move(defaults)),
      name_(std::move(name)),
      cache_(std::make_unique<FusedCache>()) {}

MultiTensorOptimizer::MultiTensorOptimizer(MultiTensorOptimizer&& other) noexcept = default;
MultiTensorOptimizer::~MultiTensorOptimizer() = default;

void MultiTensorOptimizer::check_not_moved_from() const {
  HONE_CHECK(cache_ != nullptr, "optimizer", "one that was not moved from", "one that was");
}

void MultiTensorOptimizer::set_first_parameter(Index first) {
  check_not_moved_from();
  first_parameter_ = static_cast<std::uint32_t>(first);
  cache_->forget();
}

void MultiTensorOptimizer::adopt_group_options(
    const std::vector<torch::optim::OptimizerParamGroup>& given) {
  const std::size_t offset = param_groups_.size() - given.size();
  for (std::size_t g = 0; g < given.size(); ++g) {
    const Options& options = given[g].has_options() ? given[g].options() : *defaults_;
    param_groups_[offset + g].set_options(adopt_options(options));
  }
}

void MultiTensorOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  check_not_moved_from();
  Groups all(param_groups_.begin(), param_groups_.end());
  all.push_back(group);
  check_parameters(name_, all);
  check_group(
      {group.params(), group.has_options() ? adopt_options(group.options()) : defaults_->clone()});
  Optimizer::add_param_group(group);
  adopt_group_options({group});
  try {
    check_groups_agree();
  } catch (...) {
    param_groups_.pop_back();
    throw;
  }
}

StateDtype MultiTensorOptimizer::state_dtype_for(const torch::Tensor& param,
                                                 const torch::Tensor& grad,
                                                 const Options& options) const {
  const StateDtype wanted = state_dtype_of(options);
  if (!param.is_cpu() && wanted != StateDtype::Float32) {
    fail_unsupported(name_, concat("state in fp32 on ", param.device().str()), "fewer bits");
  }
  // Narrow state takes dense memory in one order.
  const Index row_length = row_length_for(param, options);
  const bool dense = param.is_non_overlapping_and_dense() && same_layout(param, grad) &&
                     (row_length == 0 || param.is_contiguous());
  if (!dense) return StateDtype::Float32;
  if (wanted != StateDtype::Block8) return wanted;
  const bool whole_blocks = row_length % kernels::kCodeBlock == 0;
  return param.numel() >= kFewestCoded && whole_blocks ? wanted : StateDtype::Float32;
}

Index MultiTensorOptimizer::count_own(const torch::Tensor& param, const Options& options) const {
  const Index row_length = row_length_for(param, options);
  return row_length == 0 ? 1 : param.numel() / row_length;
}

void MultiTensorOptimizer::ensure_state(std::vector<Active>& active, const SlotUse& use) {
  const c10::InferenceMode normal(false);  // what is made now is written to in later steps
  std::vector<torch::Tensor*> missing;
  std::vector<const torch::Tensor*> their_params;
  for (Active& a : active) {
    std::unique_ptr<ParamState>& state = state_[a.param.unsafeGetTensorImpl()];
    if (state == nullptr) {
      state = make_state();
      made_states_.push_back(a.param.unsafeGetTensorImpl());
    }
    a.state = state.get();
    a.fields = fields_of(*state);
    const Options& options = param_groups_[a.group].options();
    const StateDtype dtype = state_dtype_for(a.param, a.grad, options);
    const auto ensure = [&](bool used, torch::Tensor* tensor, torch::Tensor* scale,
                            at::ScalarType type, float value) {
      if (!used) return;
      torch::Tensor unused;
      torch::Tensor& its_scale = scale != nullptr ? *scale : unused;
      if (tensor->defined()) {
        return follow_layout(name_, describe(a.parameter), a.param, type, *tensor, its_scale);
      }
      made_tensors_.push_back(tensor);
      if (scale != nullptr) made_tensors_.push_back(scale);
      if (type == at::kFloat && value == 0 && a.param.is_non_overlapping_and_dense()) {
        missing.push_back(tensor);
        their_params.push_back(&a.param);
        return;
      }
      make_moment(a.param, type, value, *tensor, its_scale);
    };
    ensure(use.momentum, a.fields.momentum, a.fields.momentum_scale, moment_type(dtype, false), 0);
    ensure(use.second_moment, a.fields.second_moment, a.fields.second_moment_scale,
           moment_type(dtype, true), initial_second_moment(options));
    ensure(use.extra, a.fields.extra, nullptr, at::kFloat, 0);
    if (use.average && !a.fields.average->defined()) {
      made_tensors_.push_back(a.fields.average);
      *a.fields.average = copy_like(a.param.detach().to(at::kFloat), a.param);
    }
    ensure(use.average, a.fields.average, nullptr, at::kFloat, 0);
  }
  if (missing.empty()) return;
  const std::vector<torch::Tensor> zeros = zeros_in_one_block(their_params);
  for (std::size_t i = 0; i < missing.size(); ++i) *missing[i] = zeros[i];
}

std::vector<MultiTensorOptimizer::Active> MultiTensorOptimizer::collect(const SlotUse& use) {
  std::vector<Active> active;
  for_each_parameter(param_groups_, [&](std::size_t g, const torch::Tensor& param, Index index) {
    const torch::Tensor& grad = param.grad();
    if (!grad.defined()) return;
    check_usable(name_, param, describe(index), false);
    check_usable(name_, grad, concat("gradient of ", describe(index)), true);
    HONE_CHECK(grad.sizes().equals(param.sizes()), name_,
               concat("a gradient of ", describe(index), " of shape ", c10::str(param.sizes())),
               c10::str(grad.sizes()));
    HONE_CHECK(grad.device() == param.device(), name_,
               concat("a gradient of ", describe(index), " on ", param.device().str()),
               grad.device().str());
    const Index row_length = row_length_for(param, param_groups_[g].options());
    active.push_back({param, grad, {}, nullptr, static_cast<std::uint16_t>(g), index, row_length});
  });
  ensure_state(active, use);
  return active;
}

torch::Tensor MultiTensorOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const c10::AutoGradMode enabled(true);
    loss = closure();
  }
  step_with({});
  return loss;
}

StepReport MultiTensorOptimizer::step_with(const StepControl& control) {
  check_not_moved_from();
  const c10::NoGradGuard no_grad;
  StepControl asked = control;
  prepare_control(asked);
  kernels::check_step_control(name_, asked);
  made_states_.clear();
  made_tensors_.clear();
  StepReport report;
  try {
    report =
        implementation() == Implementation::Fused ? step_on_kernels(asked) : step_on_chain(asked);
  } catch (...) {
    drop_made_state();
    throw;
  }
  if (!report.stepped) drop_made_state();
  ++(report.stepped ? stats_.steps : stats_.skipped_steps);
  stats_.grad_norm = report.grad_norm;
  stats_.clip_coef = report.clip_coef;
  stats_.temporary_bytes = report.temporary_bytes;
  after_step(report);
  return report;
}

std::unique_ptr<DeviceStep> MultiTensorOptimizer::make_device_step(c10::Device device) const {
  return device.is_cpu() ? nullptr : std::make_unique<DeviceStep>(device);
}

DeviceStep* MultiTensorOptimizer::stepped_device() const {
  DeviceStep* device = cache_ == nullptr ? nullptr : cache_->device.get();
  return device != nullptr && device->has_stepped() ? device : nullptr;
}

void MultiTensorOptimizer::fetch_state() const {
  DeviceStep* device = stepped_device();
  if (device == nullptr) return;
  const std::span<const Index> t = device->steps();
  device->own();
  for (std::size_t i = 0; i < cache_->stepped.size(); ++i) {
    const FusedCache::Stepped& one = cache_->stepped[i];
    const auto found = state_.find(one.key);
    if (found == state_.end() || found->second.get() != one.state) continue;
    // Unless somebody has set it.
    if (!t.empty() && *one.fields.step == cache_->steps[i]) {
      *one.fields.step = cache_->steps[i] = t[i];
    }
    const std::span<const double> own = device->own_of(i);
    std::copy(own.begin(), own.end(),
              own_numbers(*one.state, static_cast<Index>(own.size())).begin());
  }
}

void MultiTensorOptimizer::drop_device_state() {
  stats_ = stats();
  if (cache_ != nullptr) cache_->drop_device();
}

void MultiTensorOptimizer::drop_made_state() {
  if (made_states_.empty() && made_tensors_.empty()) return;
  for (torch::Tensor* tensor : made_tensors_) *tensor = torch::Tensor();
  for (void* param : made_states_) state_.erase(param);
  cache_->forget();
}

SlotUse MultiTensorOptimizer::slots_for(const StepControl& control) const {
  SlotUse all;
  all.average = control.ema_decay > 0;
  for (const auto& group : param_groups_) {
    const SlotUse one = slots_of(group.options());
    const auto dtype = static_cast<std::uint64_t>(state_dtype_of(group.options()));
    all.add(one);
    all.variant = (all.variant * 31 + one.variant) * 31 + dtype + 1;
  }
  return all;
}

void MultiTensorOptimizer::make_plan(const SlotUse& use) {
  fetch_state();
  drop_device_state();
  FusedCache& cache = *cache_;
  cache.forget();  // until all of this is done
  std::vector<Active> active = collect(use);
  const std::vector<double> own = adopt_tensors(active);
  cache.use = use;
  cache.read(active, use, first_parameter_);
  cache.plan.follow_or_throw(cache.lists());
  cache.stepped.clear();
  for (std::size_t i = 0; i < active.size(); ++i) {
    cache.stepped.push_back({active[i].fields, active[i].parameter,
                             active[i].param.unsafeGetTensorImpl(), active[i].state});
    cache.steps[i] = *active[i].fields.step;
  }
  if (!active.empty()) cache.device = make_device_step(active.front().param.device());
  if (cache.device != nullptr) cache.device->take(cache.lists(), own);
  cache.remember(param_groups_, active);
}

StepReport MultiTensorOptimizer::step_on_kernels(const StepControl& control) {
  FusedCache& cache = *cache_;
  const SlotUse use = slots_for(control);
  const bool writes_grads = control.grad != GradWriteBack::None;
  if (!(cache.use == use) || !cache.follow(param_groups_, state_)) make_plan(use);
  // For autograd, parameters and the gradients that are written back count as written to; as with
  // LibTorch's fused operators also where the step is then skipped.
  for_each_parameter(param_groups_, [&](std::size_t, const torch::Tensor& param, Index) {
    if (!param.grad().defined()) return;
    bump_version(param);
    if (writes_grads) bump_version(param.grad());
  });
  const auto& stepped = cache.stepped;
  StepReport report = step_fused({cache.plan, cache.device.get()}, control);
  if (report.first_nonfinite_tensor >= 0) {
    report.first_nonfinite_tensor =
        stepped[static_cast<std::size_t>(report.first_nonfinite_tensor)].parameter;
  }
  if (!report.stepped) return report;
  for (std::size_t i = 0; i < stepped.size(); ++i) *stepped[i].fields.step = cache.steps[i];
  return report;
}

bool MultiTensorOptimizer::measure_chain_norm(const std::vector<Active>& active,
                                              const StepControl& control,
                                              StepReport& report) const {
  std::vector<torch::Tensor> norms;
  // In fp64, so that the sum of squares of finite values stays finite.
  for (const Active& a : active) norms.push_back(norm_of(a.grad, control.norm_type));
  std::vector<kernels::NormPart> parts;
  const std::vector<double> values = read_scalars(norms);
  for (std::size_t i = 0; i < active.size(); ++i) {
    if (!std::isfinite(values[i]) && report.first_nonfinite_tensor < 0) {
      report.first_nonfinite_tensor = active[i].parameter;
    }
    parts.push_back({values[i]});
  }
  return kernels::report_norm(control, kernels::combine_norms(parts, control.norm_type), report);
}

void MultiTensorOptimizer::check_chain(const SlotUse& use) const {
  const auto refuse = [&](bool wrong, const char* what) {
    if (!wrong) return;
    fail_unsupported(name_, concat("Implementation::Fused for ", what), "a chain of operators");
  };
  refuse(use.average, "moving averages");
  for (const auto& group : param_groups_) {
    check_group(group);
    refuse(state_dtype_of(group.options()) != StateDtype::Float32, "state of fewer than 32 bits");
    for (const torch::Tensor& param : group.params()) {
      refuse(param.scalar_type() != at::kFloat, "parameters that are not fp32");
      if (!param.grad().defined()) continue;
      check_in_place(name_, "parameter", param);
      check_operators(param, group.options());
    }
  }
}

StepReport MultiTensorOptimizer::step_on_chain(const StepControl& control) {
  if (control.checked) {
    fail_unsupported(name_, "Implementation::Fused for a checked step", "a chain of operators");
  }
  const SlotUse use = slots_for(control);
  check_chain(use);
  fetch_state();
  drop_device_state();
  std::vector<Active> active = collect(use);
  if (control.grad != GradWriteBack::None) check_own_gradients(name_, active);
  StepReport report;
  if (control.needs_global_norm() && !measure_chain_norm(active, control, report)) return report;
  const double scale = control.inv_scale * report.clip_coef;
  const bool foreach = implementation() == Implementation::Foreach;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    ChainLists lists;
    for (Active& a : active) {
      if (a.group != g) continue;
      lists.params.push_back(a.param);
      const torch::Tensor grad = a.grad.to(a.param.scalar_type());
      lists.grads.push_back(limited(scale == 1 ? grad : grad * scale, control));
      if (use.momentum) lists.momentum.push_back(*a.fields.momentum);
      if (use.second_moment) lists.second_moment.push_back(*a.fields.second_moment);
      if (use.extra) lists.extra.push_back(*a.fields.extra);
      lists.fields.push_back(a.fields);
      lists.states.push_back(a.state);
      ++*a.fields.step;
    }
    if (lists.params.empty()) continue;
    const Options& options = param_groups_[g].options();
    foreach
      ? step_foreach(lists, options) : step_for_loop(lists, options);
  }
  for (const Active& a : active) write_back(a.grad, scale, control);
  return report;
}

std::vector<torch::Tensor> MultiTensorOptimizer::averages() const {
  std::vector<torch::Tensor> all;
  for_each_parameter(param_groups_, [&](std::size_t, const torch::Tensor& param, Index) {
    const auto found = state_.find(param.unsafeGetTensorImpl());
    all.push_back(found == state_.end() ? torch::Tensor() : *fields_of(*found->second).average);
  });
  return all;
}

std::vector<TensorPlanEntry> MultiTensorOptimizer::plan() const {
  check_not_moved_from();
  const Implementation way = implementation();
  std::vector<TensorPlanEntry> entries;
  for_each_parameter(param_groups_, [&](std::size_t g, const torch::Tensor& param, Index index) {
    const torch::Tensor& grad = param.grad();
    if (!grad.defined()) return;
    const bool flat = param.is_non_overlapping_and_dense() && same_layout(grad, param);
    TensorPlanEntry entry;
    entry.group = static_cast<Index>(g);
    entry.parameter = index;
    entry.elements = param.numel();
    entry.chunks = 1;
    entry.kernel = way == Implementation::Foreach ? "foreach" : "for_loop";
    if (way == Implementation::Fused) {
      entry.chunks = ceil_div(param.numel(), kernels::kChunkElements);
      entry.kernel = flat ? "fused" : "fused_strided";
    }
    const Options& options = param_groups_[g].options();
    const auto state = state_.find(param.unsafeGetTensorImpl());
    entry.state_dtype = state == state_.end() ? state_dtype_for(param, grad, options)
                                              : dtype_of_state(fields_of(*state->second));
    add_to_entry(param, options, entry);
    if (needs_all_gradients() && !entries.empty()) entry.exchanged_bytes = 0;
    entries.push_back(std::move(entry));
  });
  return entries;
}

}  // namespace hone::optim
