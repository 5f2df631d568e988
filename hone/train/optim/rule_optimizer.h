// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/serialize.h>

#include <span>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/rule_group.h"
#include "hone/train/interop.h"
#include "hone/train/optim/archive_class.h"
#include "hone/train/optim/device_step.h"
#include "hone/train/optim/option_fields.h"

namespace hone::optim {

// Calls check_group of the rule's namespace.
template <class Group>
void check_rule_group(std::string_view op, const Group& group) {
  check_group(op, group);
}

// The common part of optimizers with their own classes of options and state. Base is a
// MultiTensorOptimizer; `more` are the arguments of its constructor after the name. GivenOptions is
// another class of options that groups may have.
template <class Base, class OwnOptions, class OwnState, class GivenOptions = OwnOptions>
class TypedOptimizer : public Base {
 public:
  void save(torch::serialize::OutputArchive& archive) const override {
    this->fetch_state();
    torch::optim::serialize<OwnState, OwnOptions>(archive, *this);
  }
  void load(torch::serialize::InputArchive& archive) override {
    this->load_or_restore([&] {
      check_archive_class(archive, this->name(), option_names(typed(*this->defaults_)));
      torch::optim::serialize<OwnState, OwnOptions>(archive, *this);
    });
  }

 protected:
  using typename Base::Options, typename Base::ParamState;

  template <class... More>
  TypedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 const OwnOptions& defaults, const char* name, More... more)
      : Base(groups, std::make_unique<OwnOptions>(defaults), name, more...) {
    this->adopt_group_options(groups);
  }

  const OwnOptions& typed(const Options& options) const {
    return options_as<OwnOptions>(this->name(), options);
  }
  std::unique_ptr<ParamState> make_state() const override { return std::make_unique<OwnState>(); }
  Implementation implementation() const override {
    return this->template common_option<Implementation>(
        "implementation", [this](const Options& o) { return typed(o).implementation(); });
  }
  StateDtype state_dtype_of(const Options& options) const override {
    return typed(options).state_dtype();
  }
  std::unique_ptr<Options> adopt_options(const Options& given) const override {
    const auto* own = dynamic_cast<const OwnOptions*>(&given);
    auto merged = std::make_unique<OwnOptions>(
        own != nullptr ? *own : OwnOptions(options_as<GivenOptions>(this->name(), given)));
    if constexpr (std::is_default_constructible_v<OwnOptions>) {
      inherit_fields(*merged, OwnOptions(), typed(*this->defaults_));
    } else {  // lr has no default: the group's value counts
      merged->lr(merged->lr());
      inherit_fields(*merged, OwnOptions(merged->lr()), typed(*this->defaults_));
    }
    return merged;
  }
  Json json_of(const Options& options) const override { return options_to_json(typed(options)); }
};

// An optimizer whose step is one kernel call, for any rule, including a program's own
// (examples/05_optimizer_rule). Rule must define:
//   kName, kDecoupledDecay, kStateNames
//   Options        with lr(), weight_decay(), visit_fields and the fields of AddedOptions
//   GivenOptions   another class of options that groups may have: LibTorch's, or Options itself
//   State          derived from AddedState
//   Group, kStep   of the kernel; the namespace of Group has check_group and rule_slots for it
//   group_of(options), fields_of(state), static functions
//   step_for_loop  the same step by ATen operators
//   step_foreach, initial_second_moment, optional
template <class Rule>
class RuleOptimizer : public TypedOptimizer<MultiTensorOptimizer, typename Rule::Options,
                                            typename Rule::State, typename Rule::GivenOptions> {
  using Typed = typename RuleOptimizer::TypedOptimizer;

 public:
  // Options may be omitted if LibTorch's class of that name allows it.
  explicit RuleOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                         typename Rule::Options defaults = {})
      : Typed(groups, defaults, Rule::kName) {
    for (const auto& group : this->param_groups_) RuleOptimizer::check_group(group);
    RuleOptimizer::check_groups_agree();
  }
  explicit RuleOptimizer(std::vector<torch::Tensor> params, typename Rule::Options defaults = {})
      : RuleOptimizer(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
                      std::move(defaults)) {}

 protected:
  using Typed::name, Typed::typed;
  using typename Typed::FusedTensors, typename Typed::Options, typename Typed::ParamState;

  StateFields fields_of(ParamState& state) const override {
    auto& own = state_as<typename Rule::State>(Rule::kName, state);
    StateFields fields = Rule::fields_of(own);
    fields.momentum_scale = &own.momentum_scale();
    fields.second_moment_scale = &own.second_moment_scale();
    fields.average = &own.average();
    return fields;
  }
  void check_group(const torch::optim::OptimizerParamGroup& group) const override {
    check_rule_group(name(), Rule::group_of(typed(group.options())));
  }
  StateNames state_names() const override { return Rule::kStateNames; }
  SlotUse slots_of(const Options& options) const override {
    return {rule_slots(Rule::group_of(typed(options)))};
  }
  float initial_second_moment(const Options& options) const override {
    if constexpr (requires { Rule::initial_second_moment(typed(options)); }) {
      return Rule::initial_second_moment(typed(options));
    } else {
      return 0;
    }
  }
  Json json_of(const Options& options) const override {
    Json json = Typed::json_of(options);
    json["decoupled_weight_decay"] = Rule::kDecoupledDecay;  // read by torch.optim.Adam
    return json;
  }
  std::unique_ptr<Options> with_json(const Options& now, const Json& json,
                                     const std::string& where) const override {
    auto changed = options_from_json(typed(now), json, where);
    check_saved_decay(json, where, name(), Rule::kDecoupledDecay, changed->weight_decay(),
                      name() == "Adam"    ? "AdamW"
                      : name() == "AdamW" ? "Adam"
                                          : "");
    return changed;
  }
  StepReport step_fused(const FusedTensors& tensors, const StepControl& control) override {
    std::vector<typename Rule::Group> groups;
    for (const auto& group : this->param_groups_) {
      groups.push_back(Rule::group_of(typed(group.options())));
    }
    if (tensors.device != nullptr) {
      return tensors.device->step(std::span<const typename Rule::Group>(groups), control);
    }
    return Rule::kStep(tensors.plan, groups, control, libtorch_executor());
  }
  void step_for_loop(ChainLists& lists, const Options& options) override {
    Rule::step_for_loop(lists, typed(options));
  }
  void step_foreach(ChainLists& lists, const Options& options) override {
    if constexpr (requires { &Rule::step_foreach; }) {
      Rule::step_foreach(lists, typed(options));
    } else {
      Rule::step_for_loop(lists, typed(options));
    }
  }
};

}  // namespace hone::optim
