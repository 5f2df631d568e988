// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <utility>

namespace hone::nn {

// A model whose forward() maps one tensor to one tensor, with its type forgotten. Also takes what a
// torch::nn::AnyModule does not: Sequentials, and classes that inherit forward(). A model with
// other arguments is given with a function that calls it.
class ModuleCall {
 public:
  using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

  template <class Impl>
  ModuleCall(std::shared_ptr<Impl> module)  // NOLINT: meant to convert
      : module_(module), forward_([impl = module.get()](const torch::Tensor& x) {
          return torch::Tensor(impl->forward(x));
        }) {}
  template <class Impl>
  ModuleCall(const torch::nn::ModuleHolder<Impl>& holder)  // NOLINT: meant to convert
      : ModuleCall(holder.ptr()) {}
  ModuleCall(const torch::nn::AnyModule& module)  // NOLINT: meant to convert
      : module_(module.ptr()),
        forward_([any = module](const torch::Tensor& x) mutable { return any.forward(x); }) {}
  ModuleCall(std::shared_ptr<torch::nn::Module> module, Forward forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}

  torch::nn::Module& module() const { return *module_; }
  torch::Tensor operator()(const torch::Tensor& x) const { return forward_(x); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};

}  // namespace hone::nn
