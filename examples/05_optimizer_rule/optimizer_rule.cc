// SPDX-License-Identifier: Apache-2.0
// AdaBelief as an optimizer of hone's: one pass over parameters and state, gradient clipping,
// state in 8 bits and state dicts included. The same step by ATen operators is its oracle.
#include <hone/core/check.h>
#include <hone/core/error.h>
#include <hone/core/machine/cpu_info.h>
#include <hone/train/optim/adam.h>
#include <hone/train/optim/rule_optimizer.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>

#include "belief_rule.h"

namespace example {

// Options and state are borrowed from hone's AdamW, whose amsgrad does not apply. A rule with
// options of its own has a class like LionOptions in hone/train/optim/lion.h.
struct AdaBeliefRule {
  static constexpr const char* kName = "AdaBelief";
  static constexpr bool kDecoupledDecay = true;
  static constexpr hone::optim::StateNames kStateNames{"exp_avg", "exp_avg_var", ""};
  static constexpr auto kStep = belief_step;
  using Options = hone::optim::AdamWOptions;
  using GivenOptions = torch::optim::AdamWOptions;
  using State = hone::optim::AdamWParamState;
  using Group = BeliefGroup;

  static Group group_of(const Options& o) {
    if (o.amsgrad()) hone::fail_unsupported(kName, "amsgrad = false", "amsgrad = true");
    const auto [beta1, beta2] = o.betas();
    return {o.lr(), beta1, beta2, o.eps(), o.weight_decay(), o.maximize()};
  }
  static hone::optim::StateFields fields_of(State& state) {
    hone::optim::StateFields fields;
    fields.step = &state.step();
    fields.momentum = &state.exp_avg();
    fields.second_moment = &state.exp_avg_sq();
    return fields;
  }
  static void step_for_loop(hone::optim::ChainLists& lists, const Options& options) {
    const Group o = group_of(options);
    for (std::size_t i = 0; i < lists.params.size(); ++i) {
      torch::Tensor &mean = lists.momentum[i], &variance = lists.second_moment[i];
      const torch::Tensor grad = o.maximize ? -lists.grads[i] : lists.grads[i];
      const auto t = static_cast<double>(*lists.fields[i].step);
      mean.lerp_(grad, 1 - o.beta1);
      const torch::Tensor surprise = grad - mean;
      variance.mul_(o.beta2).addcmul_(surprise, surprise, 1 - o.beta2).add_(o.eps);
      const torch::Tensor root =
          (variance.sqrt() / std::sqrt(1 - std::pow(o.beta2, t))).add_(o.eps);
      lists.params[i].mul_(1 - o.lr * o.weight_decay);
      lists.params[i].addcdiv_(mean, root, -o.lr / (1 - std::pow(o.beta1, t)));
    }
  }
};

class AdaBelief : public hone::optim::RuleOptimizer<AdaBeliefRule> {
 public:
  using RuleOptimizer::RuleOptimizer;
};

// Parameters after some steps with the same gradients, and a part of each step clipped.
std::vector<torch::Tensor> train(hone::optim::Implementation way) {
  torch::manual_seed(7);
  std::vector<torch::Tensor> params{torch::randn({300, 41}), torch::randn({5}), torch::zeros({})};
  for (torch::Tensor& param : params) param.requires_grad_(true);
  auto options = hone::optim::AdamWOptions(1e-2).eps(1e-8).weight_decay(0.1);
  AdaBelief optimizer(params, options.implementation(way));
  for (int step = 0; step < 50; ++step) {
    for (torch::Tensor& param : params) param.mutable_grad() = torch::randn_like(param);
    optimizer.step_with({.clip_norm = 50});
  }
  return params;
}

}  // namespace example

int main() {
  try {
    hone::force_isa_from_environment();
  } catch (const hone::Error& error) {
    std::cout << error.what() << "\n";
    return 77;  // skipped
  }
  using hone::optim::Implementation;
  const auto fused = example::train(Implementation::Fused);
  const auto operators = example::train(Implementation::ForLoop);
  double worst = 0;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    worst = std::max(worst, (fused[i] - operators[i]).abs().max().item<double>());
  }
  std::cout << "AdaBelief in one pass and by ATen operators differ by at most " << worst << "\n";
  return worst < 1e-5 ? 0 : 1;
}
