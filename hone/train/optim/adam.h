// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <tuple>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/train/optim/rule_optimizer.h"

namespace hone::optim {

// LibTorch's options and those of AddedOptions. LibTorch's own convert, so that only the
// optimiser's name need change.
struct AdamOptions : torch::optim::AdamOptions, AddedOptions<AdamOptions> {
  using Base = torch::optim::AdamOptions;

  AdamOptions(double lr = 1e-3) : Base(lr) {}          // NOLINT: as LibTorch's
  AdamOptions(const Base& options) : Base(options) {}  // NOLINT: conversion by intent

  // LibTorch's fields again, returning this type so that calls chain.
  AdamOptions& lr(double value) { return Base::lr(value), *this; }
  AdamOptions& betas(std::tuple<double, double> value) { return Base::betas(value), *this; }
  AdamOptions& eps(double value) { return Base::eps(value), *this; }
  AdamOptions& weight_decay(double value) { return Base::weight_decay(value), *this; }
  AdamOptions& amsgrad(bool value) { return Base::amsgrad(value), *this; }
  const double& lr() const { return Base::lr(); }
  const std::tuple<double, double>& betas() const { return Base::betas(); }
  const double& eps() const { return Base::eps(); }
  const double& weight_decay() const { return Base::weight_decay(); }
  const bool& amsgrad() const { return Base::amsgrad(); }

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    auto& fields = base_of(self);
    visit("lr", fields.lr());
    visit("betas", fields.betas());
    visit("eps", fields.eps());
    visit("weight_decay", fields.weight_decay());
    visit("amsgrad", fields.amsgrad());
    visit_added(self, visit);
  }

 private:
  static Base& base_of(AdamOptions& self) { return self; }
  static const Base& base_of(const AdamOptions& self) { return self; }
  std::unique_ptr<OptimizerOptions> clone() const override;
};

// The same for AdamW, whose weight decay is decoupled.
struct AdamWOptions : torch::optim::AdamWOptions, AddedOptions<AdamWOptions> {
  using Base = torch::optim::AdamWOptions;

  AdamWOptions(double lr = 1e-3) : Base(lr) {}          // NOLINT: as LibTorch's
  AdamWOptions(const Base& options) : Base(options) {}  // NOLINT: conversion by intent

  // LibTorch's fields again, returning this type so that calls chain.
  AdamWOptions& lr(double value) { return Base::lr(value), *this; }
  AdamWOptions& betas(std::tuple<double, double> value) { return Base::betas(value), *this; }
  AdamWOptions& eps(double value) { return Base::eps(value), *this; }
  AdamWOptions& weight_decay(double value) { return Base::weight_decay(value), *this; }
  AdamWOptions& amsgrad(bool value) { return Base::amsgrad(value), *this; }
  const double& lr() const { return Base::lr(); }
  const std::tuple<double, double>& betas() const { return Base::betas(); }
  const double& eps() const { return Base::eps(); }
  const double& weight_decay() const { return Base::weight_decay(); }
  const bool& amsgrad() const { return Base::amsgrad(); }

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    auto& fields = base_of(self);
    visit("lr", fields.lr());
    visit("betas", fields.betas());
    visit("eps", fields.eps());
    visit("weight_decay", fields.weight_decay());
    visit("amsgrad", fields.amsgrad());
    visit_added(self, visit);
  }

 private:
  static Base& base_of(AdamWOptions& self) { return self; }
  static const Base& base_of(const AdamWOptions& self) { return self; }
  std::unique_ptr<OptimizerOptions> clone() const override;
};

struct AdamParamState : AddedState<AdamParamState, torch::optim::AdamParamState> {};
struct AdamWParamState : AddedState<AdamWParamState, torch::optim::AdamWParamState> {};

// ---- as RuleOptimizer wants it

struct AdamRule {
  static constexpr const char* kName = "Adam";
  static constexpr StateNames kStateNames{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  using Options = AdamOptions;
  using GivenOptions = torch::optim::AdamOptions;
  using State = AdamParamState;
  using Group = kernels::AdamGroup;

  static Group group_of(const Options& options);
  static void check_group(const Group& group);
  static SlotUse use_slots(const Options& options);
  static StateFields fields_of(State& state);
  static StepReport step(const kernels::MultiTensorPlan& plan, std::span<const Group> groups,
                         const StepControl& control, Executor& executor);
  static void step_for_loop(ChainLists& lists, const Options& options);
  static void step_foreach(ChainLists& lists, const Options& options);
};

struct AdamWRule {
  static constexpr const char* kName = "AdamW";
  static constexpr StateNames kStateNames{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  using Options = AdamWOptions;
  using GivenOptions = torch::optim::AdamWOptions;
  using State = AdamWParamState;
  using Group = kernels::AdamGroup;

  static Group group_of(const Options& options);
  static void check_group(const Group& group);
  static SlotUse use_slots(const Options& options);
  static StateFields fields_of(State& state);
  static StepReport step(const kernels::MultiTensorPlan& plan, std::span<const Group> groups,
                         const StepControl& control, Executor& executor);
  static void step_for_loop(ChainLists& lists, const Options& options);
  static void step_foreach(ChainLists& lists, const Options& options);
};

extern template class RuleOptimizer<AdamRule>;
extern template class RuleOptimizer<AdamWRule>;

// ----

// torch::optim::Adam and AdamW on hone's kernels (formula: kernels/multi_tensor/rule/adam.h). Same
// class shape, option names, state and archives: fp32 state saved by either loads into the other.
class Adam : public RuleOptimizer<AdamRule> {
 public:
  explicit Adam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                AdamOptions defaults = {})
      : RuleOptimizer(groups, std::move(defaults)) {}
  explicit Adam(std::vector<torch::Tensor> params, AdamOptions defaults = {})
      : RuleOptimizer(std::move(params), std::move(defaults)) {}
};

class AdamW : public RuleOptimizer<AdamWRule> {
 public:
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 AdamWOptions defaults = {})
      : RuleOptimizer(groups, std::move(defaults)) {}
  explicit AdamW(std::vector<torch::Tensor> params, AdamWOptions defaults = {})
      : RuleOptimizer(std::move(params), std::move(defaults)) {}
};

}  // namespace hone::optim
