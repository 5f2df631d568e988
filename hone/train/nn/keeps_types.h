// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>

namespace hone::nn {

// A layer whose buffers keep their types when the model is converted to another one.
template <class Derived>
class KeepsTypes : public torch::nn::Cloneable<Derived> {
 public:
  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype /*dtype*/, bool non_blocking = false) override {
    to(device, non_blocking);
  }
  void to(torch::Dtype /*dtype*/, bool /*non_blocking*/ = false) override {}
  void to(torch::Device device, bool non_blocking = false) override {
    torch::nn::Module::to(device, non_blocking);
  }
};

}  // namespace hone::nn
