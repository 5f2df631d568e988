// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/adamw.h"

#include <ATen/Functions.h>
#include <torch/optim/serialize.h>

#include <cmath>

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/train/interop.h"
#include "hone/train/optim/option_fields.h"

namespace hone::optim {
namespace {

const AdamWOptions& typed(const torch::optim::OptimizerOptions& options) {
  return options_as<AdamWOptions>("AdamW", options);
}

kernels::AdamGroup group_of(const AdamWOptions& options) {
  const auto [beta1, beta2] = options.betas();
  return {.lr = options.lr(),
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = options.eps(),
          .weight_decay = options.weight_decay(),
          .decoupled = true,
          .amsgrad = options.amsgrad(),
          .maximize = options.maximize()};
}

}  // namespace

void AdamWOptions::serialize(torch::serialize::OutputArchive& archive) const {
  Base::serialize(archive);
  archive.write("maximize", c10::IValue(maximize()));
  write_enum(archive, "implementation", implementation());
}

void AdamWOptions::serialize(torch::serialize::InputArchive& archive) {
  Base::serialize(archive);
  read_bool(archive, "maximize", maximize_);
  read_enum(archive, "implementation", Implementation::Fused, implementation_);
}

std::unique_ptr<torch::optim::OptimizerOptions> AdamWOptions::clone() const {
  return std::make_unique<AdamWOptions>(*this);
}

AdamW::AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamWOptions defaults)
    : MultiTensorOptimizer(groups, std::make_unique<AdamWOptions>(defaults), "AdamW") {
  adopt_group_options(groups);
  for (const auto& group : param_groups_)
    kernels::check_adam_group(group_of(typed(group.options())));
}

std::unique_ptr<MultiTensorOptimizer::Options> AdamW::adopt_options(const Options& given) const {
  const auto& base = options_as<AdamWOptions::Base>(name(), given);
  const auto* own = dynamic_cast<const AdamWOptions*>(&given);
  const AdamWOptions& defaults = typed(*defaults_);
  const AdamWOptions fresh, user = own != nullptr ? *own : AdamWOptions(base);
  auto merged = std::make_unique<AdamWOptions>();
  merged->lr(inherit_field(user.lr(), fresh.lr(), defaults.lr()))
      .betas(inherit_field(user.betas(), fresh.betas(), defaults.betas()))
      .eps(inherit_field(user.eps(), fresh.eps(), defaults.eps()))
      .weight_decay(
          inherit_field(user.weight_decay(), fresh.weight_decay(), defaults.weight_decay()))
      .amsgrad(inherit_field(user.amsgrad(), fresh.amsgrad(), defaults.amsgrad()))
      .maximize(inherit_field(user.maximize(), fresh.maximize(), defaults.maximize()))
      .implementation(
          inherit_field(user.implementation(), fresh.implementation(), defaults.implementation()));
  return merged;
}

std::unique_ptr<MultiTensorOptimizer::ParamState> AdamW::make_state() const {
  return std::make_unique<AdamWParamState>();
}

MultiTensorOptimizer::StateFields AdamW::fields_of(ParamState& state) const {
  auto& own = static_cast<AdamWParamState&>(state);
  return {.step = &own.step(),
          .momentum = &own.exp_avg(),
          .second_moment = &own.exp_avg_sq(),
          .extra = &own.max_exp_avg_sq()};
}

MultiTensorOptimizer::SlotUse AdamW::slots() const {
  return {true, true,
          common_option<bool>("amsgrad", [](const Options& o) { return typed(o).amsgrad(); })};
}

Implementation AdamW::implementation() const {
  return common_option<Implementation>("implementation",
                                       [](const Options& o) { return typed(o).implementation(); });
}

StepReport AdamW::step_fused(const kernels::MultiTensorPlan& plan, std::span<double>,
                             const StepControl& control) {
  std::vector<kernels::AdamGroup> groups;
  for (const auto& group : param_groups_) groups.push_back(group_of(typed(group.options())));
  return kernels::adam_step(plan, groups, control, libtorch_executor());
}

void AdamW::step_for_loop(ChainLists& lists, const Options& options) {
  const AdamWOptions& o = typed(options);
  const auto [beta1, beta2] = o.betas();
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor &param = lists.params[i], &mean = lists.momentum[i];
    torch::Tensor& square = lists.second_moment[i];
    const torch::Tensor grad = o.maximize() ? -lists.grads[i] : lists.grads[i];
    const auto t = static_cast<double>(*lists.fields[i].step);
    param.mul_(1 - o.lr() * o.weight_decay());
    mean.lerp_(grad, 1 - beta1);
    square.mul_(beta2).addcmul_(grad, grad, 1 - beta2);
    torch::Tensor seen = square;
    if (o.amsgrad()) {
      at::maximum_out(lists.extra[i], lists.extra[i], square);
      seen = lists.extra[i];
    }
    const torch::Tensor denominator =
        (seen.sqrt() / std::sqrt(1 - std::pow(beta2, t))).add_(o.eps());
    param.addcdiv_(mean, denominator, -o.lr() / (1 - std::pow(beta1, t)));
  }
}

void AdamW::step_foreach(ChainLists& lists, const Options& options) {
  const AdamWOptions& o = typed(options);
  const auto [beta1, beta2] = o.betas();
  const std::vector<torch::Tensor> grads =
      o.maximize() ? at::_foreach_neg(lists.grads) : lists.grads;
  std::vector<at::Scalar> root_corrections, step_sizes;
  for (const StateFields& fields : lists.fields) {
    const auto t = static_cast<double>(*fields.step);
    root_corrections.emplace_back(std::sqrt(1 - std::pow(beta2, t)));
    step_sizes.emplace_back(-o.lr() / (1 - std::pow(beta1, t)));
  }
  at::_foreach_mul_(lists.params, 1 - o.lr() * o.weight_decay());
  at::_foreach_lerp_(lists.momentum, grads, 1 - beta1);
  at::_foreach_mul_(lists.second_moment, beta2);
  at::_foreach_addcmul_(lists.second_moment, grads, grads, 1 - beta2);
  if (o.amsgrad()) at::_foreach_maximum_(lists.extra, lists.second_moment);
  std::vector<torch::Tensor> denominators =
      at::_foreach_sqrt(o.amsgrad() ? lists.extra : lists.second_moment);
  at::_foreach_div_(denominators, root_corrections);
  at::_foreach_add_(denominators, o.eps());
  at::_foreach_addcdiv_(lists.params, lists.momentum, denominators, step_sizes);
}

void AdamW::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<AdamWParamState, AdamWOptions>(archive, *this);
}

void AdamW::load(torch::serialize::InputArchive& archive) {
  load_or_restore([&] { torch::optim::serialize<AdamWParamState, AdamWOptions>(archive, *this); });
}

}  // namespace hone::optim
