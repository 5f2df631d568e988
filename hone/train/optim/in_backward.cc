// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/in_backward.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <set>

#include "hone/core/check.h"

namespace hone::optim {
namespace {

constexpr std::string_view kOp = "InBackwardOptimizer";

class StepHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  StepHook(MultiTensorOptimizer& optimizer, std::uint64_t rounding_seed, std::mutex& mutex)
      : optimizer_(optimizer), rounding_seed_(rounding_seed), mutex_(mutex) {}

  void operator()(const torch::autograd::Variable& param) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    optimizer_.step_with({.rounding_seed = rounding_seed_});
    param.mutable_grad().reset();
  }

 private:
  MultiTensorOptimizer& optimizer_;
  std::uint64_t rounding_seed_;
  std::mutex& mutex_;
};

void check_parameter(const torch::Tensor& param, std::size_t i) {
  HONE_CHECK(param.is_leaf() && param.requires_grad(), kOp,
             concat("a leaf that requires gradients as parameter ", i), "another tensor");
  HONE_CHECK(torch::autograd::impl::post_acc_grad_hooks(param) == nullptr, kOp,
             concat("parameter ", i, " once and without a hook behind its gradient"),
             "one that has a hook");
}

void check_options(const InBackwardOptions& options) {
  if (options.accumulation_steps != 1) {
    fail_unsupported(kOp, "one backward pass per step", concat(options.accumulation_steps));
  }
  if (options.clip_norm != 0) {
    fail_unsupported(kOp, "no norm clip, which needs all gradients", concat(options.clip_norm));
  }
  if (options.loss_scaling) {
    fail_unsupported(kOp, "no loss scaling, whose finite check needs all gradients", "a scaler");
  }
}

}  // namespace

InBackwardOptimizer::InBackwardOptimizer(const std::vector<torch::Tensor>& params, const Make& make,
                                         const InBackwardOptions& options)
    : params_(params) {
  check_options(options);
  std::set<const void*> seen;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    check_parameter(params_[i], i);
    HONE_CHECK(seen.insert(params_[i].unsafeGetTensorImpl()).second, kOp,
               concat("parameter ", i, " once"), "it twice");
    std::unique_ptr<MultiTensorOptimizer> one = make({params_[i]});
    HONE_CHECK(one != nullptr, kOp, concat("an optimizer for parameter ", i), "none");
    if (one->needs_all_gradients()) {
      fail_unsupported(kOp, "a rule that sees one tensor at a time", "scope Model");
    }
    one->set_first_parameter(static_cast<Index>(i));
    optimizers_.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < params_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        params_[i], std::make_unique<StepHook>(*optimizers_[i], options.rounding_seed, mutex_));
  }
}

InBackwardOptimizer::~InBackwardOptimizer() {
  for (const torch::Tensor& param : params_) {
    const auto& hook = torch::autograd::impl::post_acc_grad_hooks(param);
    if (dynamic_cast<StepHook*>(hook.get()) == nullptr) continue;  // somebody else's by now
    torch::autograd::impl::set_post_acc_grad_hooks(param, nullptr);
  }
}

void InBackwardOptimizer::set_lr(double lr) {
  for (const auto& one : optimizers_) {
    for (auto& group : one->param_groups()) group.options().set_lr(lr);
  }
}

std::vector<Index> InBackwardOptimizer::steps() const {
  std::vector<Index> all;
  for (const auto& one : optimizers_) all.push_back(one->stats().steps);
  return all;
}

}  // namespace hone::optim
