// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/layer_surgery.h"

#include <ATen/MemoryOverlap.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <set>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/train/surgery/layer_select.h"

namespace hone::nn {
namespace {

using torch::nn::AnyModule;
using torch::nn::Module;
using torch::nn::SequentialImpl;

constexpr std::string_view kReplace = "replace";

// The element of this name; null if the module under the name is not the one that is called.
AnyModule* find_element(SequentialImpl& sequential, std::string_view name) {
  auto element = sequential.begin();
  for (const auto& child : sequential.named_children()) {
    if (element == sequential.end()) break;
    if (child.key() == name) return element->ptr() == child.value() ? &*element : nullptr;
    ++element;
  }
  return nullptr;
}

AnyModule* element_of(const Layer& layer) {
  auto* sequential = layer.parent->as<SequentialImpl>();
  return sequential == nullptr ? nullptr : find_element(*sequential, layer.name());
}

void set_element(SequentialImpl& sequential, const std::string& name, const AnyModule& layer) {
  AnyModule* element = find_element(sequential, name);
  HONE_REQUIRE(element != nullptr, kReplace,
               concat("Element ", quote_name(name), " of a Sequential was moved."));
  *element = layer;
  sequential.replace_module(name, layer.ptr());
}

struct OwnedParameter {
  std::string name;
  const Module* owner;
  torch::Tensor tensor;
};

std::vector<OwnedParameter> owned_parameters(Module& model) {
  std::vector<OwnedParameter> out;
  std::set<const Module*> seen;
  const auto add = [&](const std::string& prefix, const Module& module) {
    if (!seen.insert(&module).second) return;
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (item.value().defined()) out.push_back({prefix + item.key(), &module, item.value()});
    }
  };
  add("", model);
  for (const Layer& layer : layers_of(model)) add(concat(layer.path, '.'), *layer.module);
  return out;
}

bool share_memory(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.is_same(b)) return true;
  if (!a.has_storage() || !b.has_storage() || !a.is_alias_of(b)) return false;
  return at::get_overlap_status(a, b) != at::MemOverlapStatus::No;
}

void check_ties(Module& model, const Layer& old, Module& replacement) {
  std::set<const Module*> inside;
  for (const auto& module : old.module->modules()) inside.insert(module.get());
  std::vector<OwnedParameter> own, others;
  for (OwnedParameter& parameter : owned_parameters(model)) {
    (inside.contains(parameter.owner) ? own : others).push_back(std::move(parameter));
  }
  const std::vector<torch::Tensor> kept = replacement.parameters();
  for (const OwnedParameter& parameter : own) {
    const auto is_shared = [&](const OwnedParameter& other) {
      return share_memory(parameter.tensor, other.tensor);
    };
    const auto other = std::ranges::find_if(others, is_shared);
    if (other == others.end()) continue;
    const bool stays = std::ranges::any_of(kept, [&](const torch::Tensor& tensor) {
      return tensor.defined() && share_memory(tensor, other->tensor);
    });
    if (stays) continue;
    fail_unsupported(kReplace,
                     concat("Parameter ", quote_name(parameter.name), " is tied to ",
                            quote_name(other->name), ", and the replacement would separate them."));
  }
}

void check_place(const Layer& layer) {
  if (is_replaceable(layer)) return;
  const std::string name = layer.name(), path = layer.path;
  const std::string owner =
      path == name ? "the model" : quote_name(path.substr(0, path.size() - name.size() - 1));
  fail_unsupported(kReplace, concat("Member ", quote_name(name), " of ", owner, " (",
                                    escape_controls(type_of(*layer.parent)), ") is called as a ",
                                    escape_controls(type_of(*layer.module)),
                                    ". To be replaced, it must be a hone::nn::Slot."));
}

// All places of a module.
std::vector<Layer> places_of(Module& model, const Module& module) {
  std::vector<Layer> places = layers_of(model);
  std::erase_if(places, [&](const Layer& layer) { return layer.module.get() != &module; });
  return places;
}

}  // namespace

void replace(Module& model, std::string_view path, AnyModule replacement) {
  HONE_REQUIRE(!replacement.is_empty(), kReplace, "There is no replacement.");
  const Layer old = find_layer(model, path);
  const AnyModule slot{Slot(replacement)};
  const std::vector<Layer> places = places_of(model, *old.module);
  for (const Layer& place : places) check_place(place);
  check_ties(model, old, *replacement.ptr());
  replacement.ptr()->train(old.module->is_training());
  slot.ptr()->train(old.module->is_training());
  for (const Layer& place : places) {
    if (place.slot != nullptr) {
      place.slot->set(replacement);
    } else {
      set_element(*place.parent->as<SequentialImpl>(), place.name(), slot);
    }
  }
}

Index calls_of(Module& model, std::string_view path) {
  Index calls = 0;
  std::set<const SlotImpl*> slots;
  for (const Layer& place : places_of(model, *find_layer(model, path).module)) {
    if (place.slot != nullptr && slots.insert(place.slot).second) calls += place.slot->calls();
  }
  HONE_REQUIRE(!slots.empty(), kReplace,
               concat("Layer ", quote_name(path), " is in no Slot, so that no calls are counted."));
  return calls;
}

Snapshot snapshot(Module& model) {
  Snapshot taken;
  for (const Layer& layer : layers_of(model)) {
    if (const AnyModule* element = element_of(layer)) {
      taken.places.push_back({layer.parent, layer.name(), *element});
    }
    if (layer.slot != nullptr) taken.places.push_back({layer.slot, {}, layer.slot->layer()});
  }
  return taken;
}

bool is_replaceable(const Layer& layer) {
  return layer.slot != nullptr || element_of(layer) != nullptr;
}

AnyModule content_of(const Layer& layer) {
  return layer.slot != nullptr ? layer.slot->layer() : *element_of(layer);
}

Snapshot::Place replace_place(const Layer& layer, AnyModule replacement) {
  check_place(layer);
  replacement.ptr()->train(layer.module->is_training());
  const AnyModule old = content_of(layer);
  if (layer.slot != nullptr) {
    layer.slot->set(std::move(replacement));
    return {layer.slot, {}, old};
  }
  const AnyModule slot{Slot(std::move(replacement))};
  slot.ptr()->train(layer.module->is_training());
  set_element(*layer.parent->as<SequentialImpl>(), layer.name(), slot);
  return {layer.parent, layer.name(), old};
}

void restore(const Snapshot& snapshot) {
  for (const Snapshot::Place& place : snapshot.places) {
    if (auto* slot = place.owner->as<SlotImpl>()) {
      slot->set(place.layer);
    } else {
      set_element(*place.owner->as<SequentialImpl>(), place.name, place.layer);
    }
  }
}

std::vector<std::vector<std::string>> tied_parameters(Module& model) {
  const std::vector<OwnedParameter> parameters = owned_parameters(model);
  std::vector<std::vector<std::string>> groups;
  std::vector<bool> grouped(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (grouped[i]) continue;
    std::vector<std::string> group{parameters[i].name};
    for (std::size_t j = i + 1; j < parameters.size(); ++j) {
      const bool is_tied = parameters[j].owner != parameters[i].owner &&
                           share_memory(parameters[i].tensor, parameters[j].tensor);
      if (!is_tied) continue;
      grouped[j] = true;
      group.push_back(parameters[j].name);
    }
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace hone::nn
