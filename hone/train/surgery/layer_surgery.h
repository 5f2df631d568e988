// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::nn {

// Puts `replacement`, a layer from one tensor to one tensor, into the model in place of the layer
// with this path (layers_of()), in the same training mode. A layer that is registered in several
// places is replaced in all of them by the one replacement. Only an element of a Sequential or the
// content of a Slot can be replaced: every other owner, also of a ModuleList or ModuleDict, calls
// the layer by its type, and so would go on with the old object or fail. An element of a Sequential
// comes into a Slot.
//
// Throws, and changes nothing: Error{InvalidArgument} if there is no such layer, with the three
// nearest ones, no replacement, or one whose forward() does not take exactly one tensor (sizes are
// not checked until it is called); Error{Unsupported} that names the member that would
// have to be a Slot, or the parameter of another layer with which the old one shares memory, unless
// the replacement shares it, too.
void replace(torch::nn::Module& model, std::string_view path, torch::nn::AnyModule replacement);

// How often a layer was called since it came into its Slot, in all of its places. Throws
// Error{InvalidArgument} if there is no such layer, or if it is in no Slot.
Index calls_of(torch::nn::Module& model, std::string_view path);
inline bool was_executed(torch::nn::Module& model, std::string_view path) {
  return calls_of(model, path) > 0;
}

// The layers of a model that replace() can exchange, as objects: their weights are not copied.
struct Snapshot {
  struct Place {
    torch::nn::Module* owner;  // the Sequential or the Slot
    std::string name;          // in a Sequential
    torch::nn::AnyModule layer;
  };
  std::vector<Place> places;
};
Snapshot snapshot(torch::nn::Module& model);
// Undoes every replace() since the snapshot was taken of this model.
void restore(const Snapshot& snapshot);

// Groups of parameters of different modules that share memory ("embed.weight", "head.weight").
// Replacing the module of one would separate them. A module in several places is named once.
std::vector<std::vector<std::string>> tied_parameters(torch::nn::Module& model);

}  // namespace hone::nn
