// SPDX-License-Identifier: Apache-2.0
#include "tests/train/optim/parity_support.h"

#include <torch/utils.h>

#include <algorithm>

namespace hone::optim::test {

Tensors make_params() {
  torch::manual_seed(7);
  Tensors params;
  for (const int n : {1, 7, 1000}) params.push_back(torch::rand({n}) - 0.5);
  params.push_back(torch::rand({129, 33}) - 0.5);
  params.push_back(torch::rand({3, 5, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast));
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

void set_normal_gradients(Tensors& params, int seed) {
  torch::manual_seed(seed);
  for (torch::Tensor& param : params) param.mutable_grad() = torch::randn(param.sizes());
}

void set_gradients(Tensors& params, int step) { set_normal_gradients(params, 1000 + step); }

void train_both(torch::optim::Optimizer& a, Tensors& params_a, torch::optim::Optimizer& b,
                Tensors& params_b, int steps) {
  for (int t = 0; t < steps; ++t) {
    set_gradients(params_a, t);
    set_gradients(params_b, t);
    a.step();
    b.step();
  }
}

}  // namespace hone::optim::test
