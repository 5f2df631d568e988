// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/adamw.h>

#include <tuple>
#include <utility>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// LibTorch's options plus two. LibTorch's own convert, so that only the optimiser's name need
// change.
struct AdamWOptions : torch::optim::AdamWOptions {
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

  TORCH_ARG(bool, maximize) = false;
  TORCH_ARG(Implementation, implementation) = Implementation::Fused;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 private:
  std::unique_ptr<OptimizerOptions> clone() const override;
};

using AdamWParamState = torch::optim::AdamWParamState;

// torch::optim::AdamW on hone's kernels (formula: kernels/multi_tensor/rule/adam.h). Same class
// shape, option names, state and archives: state saved by either loads into the other.
class AdamW : public MultiTensorOptimizer {
 public:
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 AdamWOptions defaults = {});
  explicit AdamW(std::vector<torch::Tensor> params, AdamWOptions defaults = {})
      : AdamW(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
              std::move(defaults)) {}

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  std::unique_ptr<ParamState> make_state() const override;
  StateFields fields_of(ParamState& state) const override;
  StateNames state_names() const override { return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}; }
  SlotUse slots() const override;
  Implementation implementation() const override;
  std::unique_ptr<Options> adopt_options(const Options& given) const override;
  StepReport step_fused(const kernels::MultiTensorPlan& plan, std::span<double> correlation,
                        const StepControl& control) override;
  void step_for_loop(ChainLists& lists, const Options& options) override;
  void step_foreach(ChainLists& lists, const Options& options) override;
};

}  // namespace hone::optim
