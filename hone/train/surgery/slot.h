// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/tensor_file.h"

namespace hone::nn {

// A module that holds a layer and is called in its place. It adds nothing to the paths of layers
// and to the names of tensors in files.
class TransparentHolder {
 public:
  virtual ~TransparentHolder() = default;
  virtual std::shared_ptr<torch::nn::Module> held() const = 0;
};

// Holds an exchangeable layer that maps one tensor to one tensor. Declare members as Slots if
// replace() should exchange them. A member of type Linear would keep the old object, whatever is
// registered under its name:
//
//   nn::Slot down = register_module("down", nn::Slot(torch::nn::Linear(64, 16)));
//
// The layer is the submodule "layer", so that parameters are named "down.layer.weight".
class SlotImpl final : public torch::nn::Cloneable<SlotImpl>, public TransparentHolder {
 public:
  // Throws Error{InvalidArgument} if `layer` is empty, or if its forward() does not take exactly
  // one tensor.
  explicit SlotImpl(torch::nn::AnyModule layer);
  template <class Impl>
  explicit SlotImpl(const torch::nn::ModuleHolder<Impl>& layer)
      : SlotImpl(torch::nn::AnyModule(layer)) {}

  torch::Tensor forward(const torch::Tensor& x);

  const torch::nn::AnyModule& layer() const { return layer_; }
  std::shared_ptr<torch::nn::Module> held() const override { return layer_.ptr(); }
  void set(torch::nn::AnyModule layer);
  // How often the layer was called since it came here.
  Index calls() const { return calls_; }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "hone::nn::Slot"; }

 private:
  torch::nn::AnyModule layer_;
  Index calls_ = 0;
};
TORCH_MODULE(Slot);

// The parameters or buffers of a model in the order of named_parameters(), named as if their layers
// were in no Slot: "down.weight", not "down.layer.weight". These are the names in files.
std::vector<NamedTensor> parameters_by_path(const torch::nn::Module& model);
std::vector<NamedTensor> buffers_by_path(const torch::nn::Module& model);

}  // namespace hone::nn
