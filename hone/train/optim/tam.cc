// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/tam.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>

#include "hone/core/log.h"
#include "hone/train/interop.h"
#include "hone/train/optim/fused_cache.h"
#include "hone/train/optim/state_tensors.h"

namespace hone::optim {
namespace {

constexpr Index kVerboseInterval = 100;

// <m, g>, |m| and |g| of one tensor, `product` being m g.
void measure_torque(const torch::Tensor& product, const torch::Tensor& momentum,
                    const torch::Tensor& grad, std::vector<torch::Tensor>& sums) {
  sums.push_back(at::sum(product, at::kDouble));
  sums.push_back(at::norm(momentum, 2, at::kDouble));
  sums.push_back(at::norm(grad, 2, at::kDouble));
}

// Reads the sums of all tensors in one go, so that a device is waited for once.
std::vector<kernels::Torque> read_torques(const std::vector<torch::Tensor>& sums) {
  const std::vector<double> values = read_scalars(sums);
  std::vector<kernels::Torque> torques;
  for (std::size_t i = 0; i < values.size(); i += 3) {
    const double m = values[i + 1], g = values[i + 2];
    torques.push_back({values[i], m * m, g * g});
  }
  return torques;
}

template <class Choice>
std::string_view name_of(Choice choice) {
  return names_of(choice)[static_cast<std::size_t>(choice)];
}

// The scope of a method, none for Auto.
std::optional<TAMScope> scope_of(CorrelationMethod method) {
  if (method == CorrelationMethod::Auto) return std::nullopt;
  return method == CorrelationMethod::Vectorized ? TAMScope::Row : TAMScope::Tensor;
}

void check_method(const std::string& op, const TorqueFields& o) {
  if (!o.scope_.has_value() || !o.correlation_method_.has_value()) return;
  const auto scope = scope_of(*o.correlation_method_);
  HONE_CHECK(scope == *o.scope_, op, concat("a correlation_method of scope ", name_of(*o.scope_)),
             concat(name_of(*o.correlation_method_), ", of scope ",
                    scope.has_value() ? name_of(*scope) : "by shape"));
}

// What Auto and the scope come down to for a tensor of this shape.
CorrelationMethod method_of(const TorqueFields& o, const torch::Tensor& param) {
  const CorrelationMethod method = o.correlation_method_.value_or(
      o.scope_ == TAMScope::Row ? CorrelationMethod::Vectorized : CorrelationMethod::Manual);
  if (method != CorrelationMethod::Auto) return method;
  if (param.numel() <= o.large_tensor_threshold_) return CorrelationMethod::Manual;
  return param.dim() >= 2 ? CorrelationMethod::Vectorized : CorrelationMethod::CosineSimilarity;
}

// In scope Model every parameter keeps a copy of the one s; parameters without gradient in a step
// fall behind, so the copy that has seen most steps counts: which it is.
std::size_t latest_of(std::span<const Index> steps) {
  return static_cast<std::size_t>(std::max_element(steps.begin(), steps.end()) - steps.begin());
}

double mean_of(std::span<const double> s) {
  return std::accumulate(s.begin(), s.end(), 0.0) / static_cast<double>(s.size());
}

double damping_of(const TorqueFields& options, double s) {
  return options.fixed_damping_.value_or((1 + s) / 2);
}

}  // namespace

const TorqueFields& TorqueOptimizer::fields(const Options& options) {
  return dynamic_cast<const TorqueFields&>(options);
}

TorqueOptimizer::TorqueOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                 std::unique_ptr<Options> defaults, const char* name, bool adaptive)
    : MultiTensorOptimizer(groups, std::move(defaults), name), adaptive_(adaptive) {}

StateFields TorqueOptimizer::fields_of(ParamState& state) const {
  auto& own = state_as<TAMParamState>(name().c_str(), state);
  return {.step = &own.step(),
          .momentum = &own.momentum_buffer(),
          .second_moment = adaptive_ ? &own.exp_avg_sq() : nullptr,
          .momentum_scale = &own.momentum_scale(),
          .second_moment_scale = &own.second_moment_scale(),
          .average = &own.average()};
}

std::span<double> TorqueOptimizer::own_numbers(ParamState& state, Index count) const {
  auto& own = state_as<TAMParamState>(name().c_str(), state);
  if (count == 1) return {&own.correlation(), 1};
  torch::Tensor& rows = own.row_correlation();
  if (!rows.defined()) rows = at::zeros({count}, at::TensorOptions(at::kDouble));
  if (!rows.is_cpu() || !rows.is_contiguous()) rows = rows.to(at::kCPU).contiguous();
  HONE_CHECK(rows.scalar_type() == at::kDouble && rows.numel() == count, name(),
             concat("a correlation in fp64 for each of ", count, " rows"),
             concat(at::toString(rows.scalar_type()), " of shape ", c10::str(rows.sizes())));
  return {rows.data_ptr<double>(), static_cast<std::size_t>(count)};
}

void TorqueOptimizer::check_imported(const NamedState& item) const {
  if (item.name != state_names().own || !item.value.defined()) return;
  if (item.value.scalar_type() != at::kFloat) return;
  fail_unsupported(name(), concat("correlation of parameter ", item.parameter,
                                  " is that of scope element, which was removed"));
}

SlotUse TorqueOptimizer::slots_of(const Options& options) const {
  SlotUse use{{.momentum = true, .second_moment = adaptive_}};
  const TorqueFields& o = fields(options);
  const auto add = [&use](std::int64_t value) {
    use.variant = use.variant * 1'000'003 + static_cast<std::uint64_t>(value);
  };
  add(o.scope_.has_value() ? 1 + static_cast<std::int64_t>(*o.scope_) : 0);
  add(o.correlation_method_.has_value() ? 1 + static_cast<std::int64_t>(*o.correlation_method_)
                                        : 0);
  add(o.large_tensor_threshold_);
  return use;
}

bool TorqueOptimizer::needs_all_gradients() const {
  return std::any_of(param_groups_.begin(), param_groups_.end(), [](const auto& group) {
    return fields(group.options()).scope_ == TAMScope::Model;
  });
}

void TorqueOptimizer::prepare_control(StepControl& control) const {
  const bool in_place = common_option<bool>(
      "use_inplace_ops", [](const Options& o) { return fields(o).use_inplace_ops_; });
  control.checked = control.checked || !in_place;
  means_ = {};
}

kernels::TAMMethod TorqueOptimizer::method_for(const torch::Tensor& param, const Options& options) {
  const TorqueFields& o = fields(options);
  if (o.scope_ == TAMScope::Model) return {.scope = TAMScope::Model};
  const CorrelationMethod method = method_of(o, param);
  if (method == CorrelationMethod::Manual) return {.guard = kernels::CosineGuard::Additive};
  const Index row = param.dim() >= 2 && param.numel() > 0 ? param.numel() / param.size(0) : 0;
  const bool rows = method == CorrelationMethod::Vectorized && row > 0 && param.size(0) > 1;
  if (!rows) return {.guard = kernels::CosineGuard::Clamp};  // one row is the tensor
  return {.scope = TAMScope::Row, .guard = kernels::CosineGuard::Clamp, .row_length = row};
}

Index TorqueOptimizer::row_length_for(const torch::Tensor& param, const Options& options) const {
  return method_for(param, options).row_length;
}

void TorqueOptimizer::add_to_entry(const torch::Tensor& param, const Options& options,
                                   TensorPlanEntry& entry) const {
  const TorqueFields& o = fields(options);
  const kernels::TAMMethod method = method_for(param, options);
  entry.method = o.scope_ == TAMScope::Model ? name_of(*o.scope_) : name_of(method_of(o, param));
  // A row that is the whole tensor is stepped in scope Tensor, and never cut.
  const bool rows =
      method.scope == TAMScope::Tensor && method_of(o, param) == CorrelationMethod::Vectorized;
  if (rows || o.fixed_damping_.has_value()) return;
  const bool coupled = o.weight_decay_ != 0 && !o.decoupled_weight_decay_;
  entry.exchanged_bytes = kernels::exchanged_bytes(method, coupled);
}

std::vector<double> TorqueOptimizer::adopt_tensors(std::vector<Active>& tensors) {
  methods_.clear();
  states_.clear();
  correlation_.clear();
  places_.clear();
  std::vector<double> all;
  std::vector<Index> steps;
  const std::size_t groups = param_groups_.size();
  HONE_CHECK(2 * groups <= 1 << 16, name(), "at most 32,768 groups", groups);
  stepped_groups_.clear();
  for (Active& a : tensors) {
    const Options& options = param_groups_[a.group].options();
    const kernels::TAMMethod& method = methods_.emplace_back(method_for(a.param, options));
    stepped_groups_.push_back(a.group);
    // The second half of the groups of step_fused() clamps.
    if (method.guard == kernels::CosineGuard::Clamp) {
      a.group = static_cast<std::uint16_t>(a.group + groups);
    }
    states_.push_back(a.state);
    const std::span<double> s = own_numbers(*a.state, count_own(a.param, options));
    correlation_.push_back(s);
    places_.push_back(s.data());
    all.insert(all.end(), s.begin(), s.end());
    steps.push_back(*a.fields.step);
  }
  return steps_model() ? std::vector{all[latest_of(steps)]} : all;
}

kernels::TAMGroup TorqueOptimizer::group_of(const Options& options) {
  const TorqueFields& o = fields(options);
  return {.lr = o.lr_,
          .momentum = o.momentum_,
          .decay_rate = o.decay_rate_,
          .beta2 = o.beta2_,
          .eps = o.eps_,
          .weight_decay = o.weight_decay_,
          .decoupled = o.decoupled_weight_decay_,
          .maximize = dynamic_cast<const AddedFields&>(options).maximize_,
          .eps_norm = o.eps_norm_,
          .eps_corr = o.eps_corr_,
          .fixed_damping = o.fixed_damping_,
          .average_momentum = o.momentum_form_ == MomentumForm::Ema,
          .bias_correction = o.bias_correction_};
}

void TorqueOptimizer::check_group(const torch::optim::OptimizerParamGroup& group) const {
  const TorqueFields& o = fields(group.options());
  check_method(name(), o);
  HONE_CHECK(o.large_tensor_threshold_ >= 0, name(), "large_tensor_threshold of at least 0",
             o.large_tensor_threshold_);
  kernels::check_group(name(), group_of(group.options()));
}

void TorqueOptimizer::check_groups_agree() const {
  MultiTensorOptimizer::check_groups_agree();
  StepControl unused;
  prepare_control(unused);
  const auto whole = [](const auto& group) {
    return fields(group.options()).scope_ == TAMScope::Model;
  };
  const bool first = whole(param_groups_.front());
  for (const auto& group : param_groups_) {
    HONE_CHECK(whole(group) == first, name(), "scope Model for all groups or none", "both");
  }
}

StepReport TorqueOptimizer::step_fused(const FusedTensors& tensors, const StepControl& control) {
  std::vector<kernels::TAMGroup> groups;
  for (const auto guard : {kernels::CosineGuard::Additive, kernels::CosineGuard::Clamp}) {
    for (const auto& group : param_groups_) {
      check_method(name(), fields(group.options()));
      groups.push_back(group_of(group.options()));
      groups.back().guard = guard;
    }
  }
  if (tensors.device == nullptr) return step_on_host(tensors.plan, groups, control);
  return tensors.device->step(std::span<const kernels::TAMGroup>(groups), control,
                              {.scope = steps_model() ? TAMScope::Model : TAMScope::Tensor});
}

StepReport TorqueOptimizer::step_on_host(const kernels::MultiTensorPlan& plan,
                                         std::span<const kernels::TAMGroup> groups,
                                         const StepControl& control) {
  kernels::TAMMethods methods{.of_tensor = methods_, .correlation = {}};
  double shared = 0;
  if (steps_model()) {
    shared = correlation_[latest_of(plan.step())].front();
    methods.values = {&shared, 1};
  } else {
    for (std::size_t i = 0; i < correlation_.size(); ++i) {
      std::span<double>& s = correlation_[i];
      // Somebody may have set another tensor.
      if (s.size() == 1) continue;
      s = own_numbers(*states_[i], static_cast<Index>(s.size()));
      places_[i] = s.data();
    }
    methods.correlation = places_;
  }
  const StepReport report = kernels::tam_step(plan, groups, methods, control, libtorch_executor());
  if (!report.stepped) return report;
  if (steps_model()) {
    for (const std::span<double> s : correlation_) s.front() = shared;
  }
  const std::size_t reported = steps_model() ? 1 : correlation_.size();
  for (std::size_t i = 0; i < reported; ++i) {
    add_to_means(stepped_groups_[i], correlation_[i], means_);
  }
  return report;
}

void TorqueOptimizer::StepMeans::write(OptimizerStats& stats) {
  if (tensors == 0) return;
  stats.correlation = s / static_cast<double>(tensors);
  stats.damping = d / static_cast<double>(tensors);
  *this = {};
}

void TorqueOptimizer::add_to_means(std::size_t group, std::span<const double> s,
                                   StepMeans& means) const {
  const double mean = mean_of(s);
  means.add(mean, damping_of(fields(param_groups_[group].options()), mean));
}

OptimizerStats TorqueOptimizer::stats() const {
  OptimizerStats now = stats_;
  DeviceStep* const device = stepped_device();
  if (device == nullptr) return now;
  const bool shared = device->own().size() == 1;
  StepMeans means;
  for (std::size_t i = 0; i < (shared ? 1 : methods_.size()); ++i) {
    add_to_means(stepped_groups_[i], device->own_of(i), means);
  }
  means.write(now);
  return now;
}

void TorqueOptimizer::check_operators(const torch::Tensor& param, const Options& options) const {
  if (fields(options).bias_correction_) {
    fail_unsupported(name(), "Implementation::Fused for bias_correction", "a chain of operators");
  }
  const TAMScope scope = method_for(param, options).scope;
  if (scope == TAMScope::Tensor) return;
  fail_unsupported(name(), concat("Implementation::Fused for scope ", name_of(scope)),
                   "a chain of operators");
}

std::vector<at::Scalar> TorqueOptimizer::advance_damping(
    ChainLists& lists, const Options& options, const std::vector<kernels::Torque>& torques) {
  const TorqueFields& o = fields(options);
  const kernels::TAMGroup group = group_of(options);
  std::vector<at::Scalar> damping;
  for (std::size_t i = 0; i < torques.size(); ++i) {
    const kernels::TAMMethod method = method_for(lists.params[i], options);
    double& s = own_numbers(*lists.states[i], 1).front();
    s = kernels::next_correlation(group, s,
                                  kernels::torque_cosine(torques[i], group, *method.guard));
    const double d = damping_of(o, s);
    means_.add(s, d);
    damping.emplace_back((group.eps + d) * (group.average_momentum ? 1 - group.momentum : 1));
  }
  return damping;
}

void TorqueOptimizer::step_for_loop(ChainLists& lists, const Options& options) {
  const kernels::TAMGroup group = group_of(options);
  std::vector<torch::Tensor> grads, sums;
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor grad = group.maximize ? -lists.grads[i] : lists.grads[i];
    if (!group.decoupled && group.weight_decay != 0) {
      grad = grad.add(lists.params[i], group.weight_decay);
    }
    measure_torque(at::mul(lists.momentum[i], grad), lists.momentum[i], grad, sums);
    grads.push_back(grad);
  }
  const std::vector<at::Scalar> damping = advance_damping(lists, options, read_torques(sums));
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor& param = lists.params[i];
    lists.momentum[i].mul_(group.momentum).add_(grads[i], damping[i]);
    if (group.decoupled) param.mul_(1 - group.lr * group.weight_decay);
    if (adaptive_) {
      lists.second_moment[i].mul_(group.beta2).addcmul_(grads[i], grads[i], 1 - group.beta2);
      param.addcdiv_(lists.momentum[i], lists.second_moment[i].sqrt().add_(group.eps), -group.lr);
    } else {
      param.add_(lists.momentum[i], -group.lr);
    }
  }
}

void TorqueOptimizer::step_foreach(ChainLists& lists, const Options& options) {
  const kernels::TAMGroup group = group_of(options);
  std::vector<torch::Tensor> grads = group.maximize ? at::_foreach_neg(lists.grads) : lists.grads;
  if (!group.decoupled && group.weight_decay != 0) {
    grads = at::_foreach_add(grads, lists.params, group.weight_decay);
  }
  const std::vector<torch::Tensor> products = at::_foreach_mul(lists.momentum, grads);
  std::vector<torch::Tensor> sums;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    measure_torque(products[i], lists.momentum[i], grads[i], sums);
  }
  const std::vector<at::Scalar> damping = advance_damping(lists, options, read_torques(sums));
  at::_foreach_mul_(lists.momentum, group.momentum);
  at::_foreach_add_(lists.momentum, at::_foreach_mul(grads, damping));
  if (group.decoupled) at::_foreach_mul_(lists.params, 1 - group.lr * group.weight_decay);
  if (!adaptive_) return at::_foreach_add_(lists.params, lists.momentum, -group.lr);
  at::_foreach_mul_(lists.second_moment, group.beta2);
  at::_foreach_addcmul_(lists.second_moment, grads, grads, 1 - group.beta2);
  std::vector<torch::Tensor> denominators = at::_foreach_sqrt(lists.second_moment);
  at::_foreach_add_(denominators, group.eps);
  at::_foreach_addcdiv_(lists.params, lists.momentum, denominators, -group.lr);
}

void TorqueOptimizer::after_step(const StepReport& report) {
  if (report.stepped) means_.write(stats_);
  if (!fields(*defaults_).verbose_ || stats_.steps % kVerboseInterval != 0 || !report.stepped)
    return;
  const OptimizerStats now = stats();
  log_info(concat(name(), " step ", now.steps, ": s ", now.correlation, ", d ", now.damping,
                  ", gradient norm ",
                  report.grad_norm < 0 ? std::string("not measured") : concat(report.grad_norm),
                  ", skipped ", now.skipped_steps));
}

double suggest_lr(double sgdm_lr, const OptimizerStats& stats) {
  HONE_CHECK(stats.steps > 0 && stats.damping > 0, "suggest_lr",
             "the statistics of a TAM that has taken steps and damps by more than 0",
             concat(stats.steps, " steps and ", stats.damping));
  return sgdm_lr / stats.damping;
}

// ---- the classes ----

template <class OwnOptions>
TorqueClass<OwnOptions>::TorqueClass(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                     OwnOptions defaults)
    : TorqueClass::TypedOptimizer(groups, defaults, OwnOptions::kOptimizer, OwnOptions::kAdaptive) {
  for (const auto& group : this->param_groups_) this->check_group(group);
  this->check_groups_agree();
}

template <class OwnOptions>
std::unique_ptr<torch::optim::OptimizerOptions> TorqueClass<OwnOptions>::with_json(
    const Options& now, const Json& json, const std::string& where) const {
  refuse_removed_options(json, where);
  auto changed = options_from_json(this->typed(now), json, where);
  if constexpr (std::is_same_v<OwnOptions, AdaTAMWOptions>) {
    check_saved_decay(json, where, this->name(), true, changed->weight_decay(), "AdaTAM");
    changed->decoupled_weight_decay_ = true;
  }
  return changed;
}

template class TorqueClass<TAMOptions>;
template class TorqueClass<AdaTAMOptions>;
template class TorqueClass<AdaTAMWOptions>;

}  // namespace hone::optim
