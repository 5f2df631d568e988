// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/sgd.h>

#include <utility>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// LibTorch's options plus two. LibTorch's own convert, so that only the optimiser's name need
// change.
struct SGDOptions : torch::optim::SGDOptions {
  using Base = torch::optim::SGDOptions;

  SGDOptions(double lr) : Base(lr) {}                 // NOLINT: as LibTorch's
  SGDOptions(const Base& options) : Base(options) {}  // NOLINT: conversion by intent

  // LibTorch's fields again, returning this type so that calls chain.
  SGDOptions& lr(double value) { return Base::lr(value), *this; }
  SGDOptions& momentum(double value) { return Base::momentum(value), *this; }
  SGDOptions& dampening(double value) { return Base::dampening(value), *this; }
  SGDOptions& weight_decay(double value) { return Base::weight_decay(value), *this; }
  SGDOptions& nesterov(bool value) { return Base::nesterov(value), *this; }
  const double& lr() const { return Base::lr(); }
  const double& momentum() const { return Base::momentum(); }
  const double& dampening() const { return Base::dampening(); }
  const double& weight_decay() const { return Base::weight_decay(); }
  const bool& nesterov() const { return Base::nesterov(); }

  TORCH_ARG(bool, maximize) = false;
  TORCH_ARG(Implementation, implementation) = Implementation::Fused;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 private:
  std::unique_ptr<OptimizerOptions> clone() const override;
};

// LibTorch's momentum_buffer, and the number of steps taken (the first one sets the buffer).
struct SGDParamState : torch::optim::SGDParamState {
  TORCH_ARG(int64_t, step) = 0;

 public:
  // An archive of LibTorch's has no step: a buffer in it has been stepped.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 private:
  std::unique_ptr<OptimizerParamState> clone() const override;
};

// torch::optim::SGD on hone's kernels (formula: kernels/multi_tensor/rule/sgd.h). Same class shape,
// option names and archives: state saved by either loads into the other. When one group has
// momentum, all keep a buffer.
class SGD : public MultiTensorOptimizer {
 public:
  SGD(const std::vector<torch::optim::OptimizerParamGroup>& groups, SGDOptions defaults);
  SGD(std::vector<torch::Tensor> params, SGDOptions defaults)
      : SGD(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
            std::move(defaults)) {}

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  std::unique_ptr<ParamState> make_state() const override;
  StateFields fields_of(ParamState& state) const override;
  StateNames state_names() const override { return {"momentum_buffer", "", ""}; }
  SlotUse slots() const override;
  Implementation implementation() const override;
  std::unique_ptr<Options> adopt_options(const Options& given) const override;
  StepReport step_fused(const kernels::MultiTensorPlan& plan, std::span<double> correlation,
                        const StepControl& control) override;
  void step_for_loop(ChainLists& lists, const Options& options) override;
  void step_foreach(ChainLists& lists, const Options& options) override;
};

}  // namespace hone::optim
