// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "hone/train/surgery/slot.h"

namespace hone::nn {

// A module below the root of a model. A Slot, or another TransparentHolder, and its content are one
// layer with the path of the Slot, so that the path of a layer does not depend on whether it is in
// a Slot.
struct Layer {
  std::string path;                           // "blocks.0.mlp.down"
  std::shared_ptr<torch::nn::Module> module;  // the content of the Slot, not the Slot
  SlotImpl* slot = nullptr;                   // null if not in a Slot
  TransparentHolder* holder = nullptr;        // the Slot, or another holder; null without one
  torch::nn::Module* parent = nullptr;

  std::string name() const;  // in its parent: "down"
};

// Returns all layers in the order of registration, parents before children. A module that is
// registered in several places appears several times.
std::vector<Layer> layers_of(torch::nn::Module& model);

// The class without namespaces, template arguments and "Impl": "Linear".
std::string type_of(const torch::nn::Module& module);

// One line for each layer: "down (Linear), in a Slot, 1040 parameters" below the line of its parent
// "mlp (Mlp)/". Only a layer's own parameters count. The first line has the type of the model.
std::string module_tree(torch::nn::Module& model);

}  // namespace hone::nn
