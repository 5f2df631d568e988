// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/surgery/layer_tree.h"

namespace hone::nn {

// Replaces the layer with this path (layers_of()) by `replacement`, which maps one tensor to one
// tensor, and sets its training mode to that of the old layer. If the layer is registered in
// several places, replaces all of them. Only an element of a Sequential or the content of a Slot
// can be replaced. Any other owner, including one with a ModuleList or ModuleDict, calls the layer
// by its type, and would keep the old object or fail. An element of a Sequential is put into a
// Slot.
//
// Throws, and changes nothing. Error{InvalidArgument}: there is no such layer (lists the three
// nearest paths), no replacement, or its forward() does not take exactly one tensor. Sizes are not
// checked until it is called. Error{Unsupported}: names the member that would have to be a Slot, or
// a parameter of another layer that shares memory with the old layer but not with the replacement.
void replace(torch::nn::Module& model, std::string_view path, torch::nn::AnyModule replacement);

// Returns the number of calls of a layer since it was put into its Slot, in all of its places.
// Throws Error{InvalidArgument} if there is no such layer, or if it is not in a Slot.
Index calls_of(torch::nn::Module& model, std::string_view path);
inline bool was_executed(torch::nn::Module& model, std::string_view path) {
  return calls_of(model, path) > 0;
}

// The layers of a model that replace() can exchange, as objects. Does not copy their weights.
struct Snapshot {
  struct Place {
    torch::nn::Module* owner;  // the Sequential or the Slot
    std::string name;          // in a Sequential
    torch::nn::AnyModule layer;
  };
  std::vector<Place> places;
};
Snapshot snapshot(torch::nn::Module& model);
// Whether replace_place() can exchange the layer.
bool is_replaceable(const Layer& layer);
// The layer as its owner calls it. It must be replaceable.
torch::nn::AnyModule content_of(const Layer& layer);
// Replaces the layer at this place only, even if it is registered elsewhere, too. Returns the place
// as it was. The layer must be replaceable.
Snapshot::Place replace_place(const Layer& layer, torch::nn::AnyModule replacement);
// Undoes every replace() after this snapshot of the model.
void restore(const Snapshot& snapshot);

// Groups of parameters of different modules that share memory ("embed.weight", "head.weight").
// Replacing the module of one would separate them. A module in several places is named once.
std::vector<std::vector<std::string>> tied_parameters(torch::nn::Module& model);

}  // namespace hone::nn
