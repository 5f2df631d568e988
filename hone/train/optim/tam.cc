// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/tam.h"

#include <ATen/Functions.h>
#include <torch/optim/serialize.h>

#include <algorithm>

#include "hone/core/log.h"
#include "hone/train/interop.h"
#include "hone/train/optim/option_fields.h"

namespace hone::optim {
namespace {

constexpr Index kVerboseInterval = 100;

// The fields that both option types have.
template <class Options>
kernels::TAMGroup shared_group(const Options& o) {
  const bool clamp = o.correlation_method() == CorrelationMethod::CosineSimilarity;
  return {.lr = o.lr(),
          .momentum = o.momentum(),
          .decay_rate = o.decay_rate(),
          .eps = o.eps(),
          .weight_decay = o.weight_decay(),
          .maximize = o.maximize(),
          .guard = clamp ? kernels::CosineGuard::Clamp : kernels::CosineGuard::Additive,
          .eps_norm = o.eps_norm(),
          .eps_corr = o.eps_corr()};
}

template <class Options>
void check_method(const std::string& op, const Options& o) {
  const bool conflict = o.scope() == TAMScope::Model && o.correlation_method().has_value();
  HONE_CHECK(!conflict, op, "no correlation_method with scope Model",
             o.correlation_method() == CorrelationMethod::Manual
                 ? "Manual, a Tensor-scope method"
                 : "CosineSimilarity, a Tensor-scope method");
}

double sum_products(const torch::Tensor& a, const torch::Tensor& b) {
  return at::sum(at::mul(a, b), at::kDouble).item<double>();
}
double sum_squares(const torch::Tensor& a) {
  const double norm = at::norm(a, 2, at::kDouble).item<double>();
  return norm * norm;
}

}  // namespace

// ---- shared by TAM and AdaTAMW ----

std::unique_ptr<MultiTensorOptimizer::ParamState> TorqueOptimizer::make_state() const {
  return std::make_unique<TAMParamState>();
}

MultiTensorOptimizer::StateFields TorqueOptimizer::fields_of(ParamState& state) const {
  auto& own = static_cast<TAMParamState&>(state);
  return {.step = &own.step(),
          .momentum = &own.momentum_buffer(),
          .second_moment = adaptive() ? &own.exp_avg_sq() : nullptr,
          .correlation = &own.correlation()};
}

std::string TorqueOptimizer::method_of(const Options& options) const {
  if (scope() == TAMScope::Model) return "model";
  return group_of(options).guard == kernels::CosineGuard::Additive ? "manual" : "cosine_similarity";
}

void TorqueOptimizer::check_groups() const {
  for (const auto& group : param_groups_) kernels::check_tam_group(group_of(group.options()));
}

StepReport TorqueOptimizer::step_fused(const kernels::MultiTensorPlan& plan,
                                       std::span<double> correlation, const StepControl& control) {
  std::vector<kernels::TAMGroup> groups;
  for (const auto& group : param_groups_) groups.push_back(group_of(group.options()));
  if (scope() == TAMScope::Tensor) {
    return kernels::tam_step(plan, groups, TAMScope::Tensor, correlation, control,
                             libtorch_executor());
  }
  // Every parameter keeps a copy of the one s; parameters without gradient in a step fall behind,
  // so the copy that has seen most steps counts.
  const auto steps = plan.step();
  const auto latest = std::max_element(steps.begin(), steps.end());
  double shared = latest == steps.end() ? 0 : correlation[latest - steps.begin()];
  const StepReport report =
      kernels::tam_step(plan, groups, TAMScope::Model, {&shared, 1}, control, libtorch_executor());
  std::fill(correlation.begin(), correlation.end(), shared);
  return report;
}

std::vector<at::Scalar> TorqueOptimizer::advance_damping(
    ChainLists& lists, const kernels::TAMGroup& group,
    const std::vector<kernels::Torque>& torques) const {
  if (scope() == TAMScope::Model) {
    fail_unsupported(name(), "Implementation::Fused for scope Model", "a chain of operators");
  }
  std::vector<at::Scalar> damping;
  for (std::size_t i = 0; i < torques.size(); ++i) {
    const double cosine = kernels::torque_cosine(torques[i], group, group.guard);
    double& s = *lists.fields[i].correlation;
    s = group.decay_rate * s + (1 - group.decay_rate) * cosine;
    damping.emplace_back(group.eps + (1 + s) / 2);
  }
  return damping;
}

void TorqueOptimizer::step_for_loop(ChainLists& lists, const Options& options) {
  const kernels::TAMGroup group = group_of(options);
  std::vector<torch::Tensor> grads;
  std::vector<kernels::Torque> torques;
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor grad = group.maximize ? -lists.grads[i] : lists.grads[i];
    if (!group.decoupled && group.weight_decay != 0) {
      grad = grad.add(lists.params[i], group.weight_decay);
    }
    torques.push_back(
        {sum_products(lists.momentum[i], grad), sum_squares(lists.momentum[i]), sum_squares(grad)});
    grads.push_back(grad);
  }
  const std::vector<at::Scalar> damping = advance_damping(lists, group, torques);
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor& param = lists.params[i];
    lists.momentum[i].mul_(group.momentum).add_(grads[i], damping[i]);
    if (group.decoupled) param.mul_(1 - group.lr * group.weight_decay);
    if (adaptive()) {
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
  std::vector<kernels::Torque> torques;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    torques.push_back({at::sum(products[i], at::kDouble).item<double>(),
                       sum_squares(lists.momentum[i]), sum_squares(grads[i])});
  }
  const std::vector<at::Scalar> damping = advance_damping(lists, group, torques);
  at::_foreach_mul_(lists.momentum, group.momentum);
  at::_foreach_add_(lists.momentum, at::_foreach_mul(grads, damping));
  if (group.decoupled) at::_foreach_mul_(lists.params, 1 - group.lr * group.weight_decay);
  if (!adaptive()) return at::_foreach_add_(lists.params, lists.momentum, -group.lr);
  at::_foreach_mul_(lists.second_moment, group.beta2);
  at::_foreach_addcmul_(lists.second_moment, grads, grads, 1 - group.beta2);
  std::vector<torch::Tensor> denominators = at::_foreach_sqrt(lists.second_moment);
  at::_foreach_add_(denominators, group.eps);
  at::_foreach_addcdiv_(lists.params, lists.momentum, denominators, -group.lr);
}

void TorqueOptimizer::after_step(const StepReport& report) {
  if (!verbose() || stats_.steps % kVerboseInterval != 0 || !report.stepped) return;
  log_info(concat(name(), " step ", stats_.steps, ": s ", stats_.correlation, ", d ",
                  stats_.damping, ", gradient norm ",
                  report.grad_norm < 0 ? std::string("not measured") : concat(report.grad_norm),
                  ", skipped ", stats_.skipped_steps));
}

// ---- TAM ----

namespace {
const TAMOptions& tam_options(const torch::optim::OptimizerOptions& options) {
  return options_as<TAMOptions>("TAM", options);
}
const AdaTAMWOptions& adatamw_options(const torch::optim::OptimizerOptions& options) {
  return options_as<AdaTAMWOptions>("AdaTAMW", options);
}
}  // namespace

TAM::TAM(const std::vector<torch::optim::OptimizerParamGroup>& groups, TAMOptions defaults)
    : TorqueOptimizer(groups, std::make_unique<TAMOptions>(defaults), "TAM") {
  adopt_group_options(groups);
  check_groups();
}

kernels::TAMGroup TAM::group_of(const Options& options) const {
  const TAMOptions& o = tam_options(options);
  check_method(name(), o);
  kernels::TAMGroup group = shared_group(o);
  group.decoupled = o.decoupled_weight_decay();
  return group;
}

TAMScope TAM::scope() const {
  return common_option<TAMScope>("scope", [](const Options& o) { return tam_options(o).scope(); });
}
bool TAM::verbose() const { return tam_options(*defaults_).verbose(); }
bool TAM::wants_checked_step() const {
  return !common_option<bool>("use_inplace_ops",
                              [](const Options& o) { return tam_options(o).use_inplace_ops(); });
}
Implementation TAM::implementation() const {
  return common_option<Implementation>(
      "implementation", [](const Options& o) { return tam_options(o).implementation(); });
}
std::unique_ptr<MultiTensorOptimizer::Options> TAM::adopt_options(const Options& given) const {
  auto merged = std::make_unique<TAMOptions>(tam_options(given));
  merged->inherit(tam_options(*defaults_));
  return merged;
}
void TAM::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<TAMParamState, TAMOptions>(archive, *this);
}
void TAM::load(torch::serialize::InputArchive& archive) {
  load_or_restore([&] { torch::optim::serialize<TAMParamState, TAMOptions>(archive, *this); });
}

// ---- AdaTAMW ----

AdaTAMW::AdaTAMW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 AdaTAMWOptions defaults)
    : TorqueOptimizer(groups, std::make_unique<AdaTAMWOptions>(defaults), "AdaTAMW") {
  adopt_group_options(groups);
  check_groups();
}

kernels::TAMGroup AdaTAMW::group_of(const Options& options) const {
  const AdaTAMWOptions& o = adatamw_options(options);
  check_method(name(), o);
  kernels::TAMGroup group = shared_group(o);
  group.beta2 = o.beta2();
  group.decoupled = true;
  return group;
}

TAMScope AdaTAMW::scope() const {
  return common_option<TAMScope>("scope",
                                 [](const Options& o) { return adatamw_options(o).scope(); });
}
bool AdaTAMW::verbose() const { return adatamw_options(*defaults_).verbose(); }
bool AdaTAMW::wants_checked_step() const {
  return !common_option<bool>(
      "use_inplace_ops", [](const Options& o) { return adatamw_options(o).use_inplace_ops(); });
}
Implementation AdaTAMW::implementation() const {
  return common_option<Implementation>(
      "implementation", [](const Options& o) { return adatamw_options(o).implementation(); });
}
std::unique_ptr<MultiTensorOptimizer::Options> AdaTAMW::adopt_options(const Options& given) const {
  auto merged = std::make_unique<AdaTAMWOptions>(adatamw_options(given));
  merged->inherit(adatamw_options(*defaults_));
  return merged;
}
void AdaTAMW::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<TAMParamState, AdaTAMWOptions>(archive, *this);
}
void AdaTAMW::load(torch::serialize::InputArchive& archive) {
  load_or_restore([&] { torch::optim::serialize<TAMParamState, AdaTAMWOptions>(archive, *this); });
}

}  // namespace hone::optim
