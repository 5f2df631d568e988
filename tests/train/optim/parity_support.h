// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "tests/support/tensors.h"

// The same training with hone's optimizers and with others.
namespace hone::optim::test {

using hone::test::Tensors;
using hone::test::worst_difference;

// Five parameters, one of them channels-last; always the same numbers.
Tensors make_params();
// Contiguous, the same for the same step.
void set_gradients(Tensors& params, int step);
// Standard normal ones of any parameters, by LibTorch's generator from this seed.
void set_normal_gradients(Tensors& params, int seed);
constexpr double kBound = 2e-6;  // of worst_difference()

// Steps both over the same gradients.
void train_both(torch::optim::Optimizer& a, Tensors& params_a, torch::optim::Optimizer& b,
                Tensors& params_b, int steps);

// The optimizer's own options, of which groups inherit what they leave at its default.
template <class Options>
Options default_options() {
  if constexpr (std::is_default_constructible_v<Options>) {
    return Options();
  } else {
    return Options(1.0);  // a rate that every group replaces
  }
}

// The first three and the last two of make_params().
template <class Options>
std::vector<torch::optim::OptimizerParamGroup> two_groups(const Tensors& params, const Options& a,
                                                          const Options& b) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors(params.begin(), params.begin() + 3), std::make_unique<Options>(a));
  groups.emplace_back(Tensors(params.begin() + 3, params.end()), std::make_unique<Options>(b));
  return groups;
}

}  // namespace hone::optim::test
