// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/sgd.h"

#include <ATen/Functions.h>
#include <torch/optim/serialize.h>

#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/train/interop.h"
#include "hone/train/optim/option_fields.h"

namespace hone::optim {
namespace {

const SGDOptions& typed(const torch::optim::OptimizerOptions& options) {
  return options_as<SGDOptions>("SGD", options);
}

kernels::SGDGroup group_of(const SGDOptions& options) {
  return {.lr = options.lr(),
          .momentum = options.momentum(),
          .dampening = options.dampening(),
          .weight_decay = options.weight_decay(),
          .nesterov = options.nesterov(),
          .maximize = options.maximize()};
}

}  // namespace

void SGDOptions::serialize(torch::serialize::OutputArchive& archive) const {
  Base::serialize(archive);
  archive.write("maximize", c10::IValue(maximize()));
  write_enum(archive, "implementation", implementation());
}

void SGDOptions::serialize(torch::serialize::InputArchive& archive) {
  Base::serialize(archive);
  read_bool(archive, "maximize", maximize_);
  read_enum(archive, "implementation", Implementation::Fused, implementation_);
}

std::unique_ptr<torch::optim::OptimizerOptions> SGDOptions::clone() const {
  return std::make_unique<SGDOptions>(*this);
}

void SGDParamState::serialize(torch::serialize::OutputArchive& archive) const {
  torch::optim::SGDParamState::serialize(archive);
  archive.write("step", c10::IValue(step()));
}

void SGDParamState::serialize(torch::serialize::InputArchive& archive) {
  torch::optim::SGDParamState::serialize(archive);
  c10::IValue stored;
  step(archive.try_read("step", stored) ? stored.toInt() : momentum_buffer().defined());
}

std::unique_ptr<torch::optim::OptimizerParamState> SGDParamState::clone() const {
  return std::make_unique<SGDParamState>(*this);
}

SGD::SGD(const std::vector<torch::optim::OptimizerParamGroup>& groups, SGDOptions defaults)
    : MultiTensorOptimizer(groups, std::make_unique<SGDOptions>(defaults), "SGD") {
  adopt_group_options(groups);
  for (const auto& group : param_groups_)
    kernels::check_sgd_group(group_of(typed(group.options())));
}

std::unique_ptr<MultiTensorOptimizer::Options> SGD::adopt_options(const Options& given) const {
  const auto& base = options_as<SGDOptions::Base>(name(), given);
  const auto* own = dynamic_cast<const SGDOptions*>(&given);
  const SGDOptions& defaults = typed(*defaults_);
  // lr has no constructor default: what a group says counts.
  const SGDOptions user = own != nullptr ? *own : SGDOptions(base), fresh(user.lr());
  auto merged = std::make_unique<SGDOptions>(user.lr());
  merged->momentum(inherit_field(user.momentum(), fresh.momentum(), defaults.momentum()))
      .dampening(inherit_field(user.dampening(), fresh.dampening(), defaults.dampening()))
      .weight_decay(
          inherit_field(user.weight_decay(), fresh.weight_decay(), defaults.weight_decay()))
      .nesterov(inherit_field(user.nesterov(), fresh.nesterov(), defaults.nesterov()))
      .maximize(inherit_field(user.maximize(), fresh.maximize(), defaults.maximize()))
      .implementation(
          inherit_field(user.implementation(), fresh.implementation(), defaults.implementation()));
  return merged;
}

std::unique_ptr<MultiTensorOptimizer::ParamState> SGD::make_state() const {
  return std::make_unique<SGDParamState>();
}

MultiTensorOptimizer::StateFields SGD::fields_of(ParamState& state) const {
  auto& own = static_cast<SGDParamState&>(state);
  return {.step = &own.step(), .momentum = &own.momentum_buffer()};
}

MultiTensorOptimizer::SlotUse SGD::slots() const {
  SlotUse use;
  for (const auto& group : param_groups_) {
    use.momentum = use.momentum || typed(group.options()).momentum() > 0;
  }
  return use;
}

Implementation SGD::implementation() const {
  return common_option<Implementation>("implementation",
                                       [](const Options& o) { return typed(o).implementation(); });
}

StepReport SGD::step_fused(const kernels::MultiTensorPlan& plan, std::span<double>,
                           const StepControl& control) {
  std::vector<kernels::SGDGroup> groups;
  for (const auto& group : param_groups_) groups.push_back(group_of(typed(group.options())));
  return kernels::sgd_step(plan, groups, control, libtorch_executor());
}

void SGD::step_for_loop(ChainLists& lists, const Options& options) {
  const SGDOptions& o = typed(options);
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor& param = lists.params[i];
    torch::Tensor grad = o.maximize() ? -lists.grads[i] : lists.grads[i];
    if (o.weight_decay() != 0) grad = grad.add(param, o.weight_decay());
    if (o.momentum() != 0) {
      torch::Tensor& buffer = lists.momentum[i];
      if (*lists.fields[i].step == 1) {
        buffer.copy_(grad);
      } else {
        buffer.mul_(o.momentum()).add_(grad, 1 - o.dampening());
      }
      grad = o.nesterov() ? grad.add(buffer, o.momentum()) : buffer;
    }
    param.add_(grad, -o.lr());
  }
}

void SGD::step_foreach(ChainLists& lists, const Options& options) {
  const SGDOptions& o = typed(options);
  std::vector<torch::Tensor> grads = o.maximize() ? at::_foreach_neg(lists.grads) : lists.grads;
  if (o.weight_decay() != 0) grads = at::_foreach_add(grads, lists.params, o.weight_decay());
  if (o.momentum() != 0) {
    // A first step starts from zero and takes the whole gradient: keep 0, share 1.
    std::vector<at::Scalar> keep, share;
    for (const StateFields& fields : lists.fields) {
      const bool first = *fields.step == 1;
      keep.emplace_back(first ? 0.0 : o.momentum());
      share.emplace_back(first ? 1.0 : 1 - o.dampening());
    }
    at::_foreach_mul_(lists.momentum, keep);
    at::_foreach_add_(lists.momentum, at::_foreach_mul(grads, share));
    grads = o.nesterov() ? at::_foreach_add(grads, lists.momentum, o.momentum()) : lists.momentum;
  }
  at::_foreach_add_(lists.params, grads, -o.lr());
}

void SGD::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<SGDParamState, SGDOptions>(archive, *this);
}

void SGD::load(torch::serialize::InputArchive& archive) {
  load_or_restore([&] { torch::optim::serialize<SGDParamState, SGDOptions>(archive, *this); });
}

}  // namespace hone::optim
