// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/layer_tree.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <typeinfo>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::nn {
namespace {

using torch::nn::Module;

void append_layers(Module& parent, const std::string& prefix, std::vector<Layer>& out) {
  for (const auto& child : parent.named_children()) {
    if (child.value() == nullptr) continue;
    Layer layer{.path = prefix + child.key(), .module = child.value(), .parent = &parent};
    while (auto* holder = dynamic_cast<TransparentHolder*>(layer.module.get())) {
      layer.holder = holder;
      layer.slot = layer.module->as<SlotImpl>();
      layer.module = holder->held();
    }
    out.push_back(layer);
    append_layers(*layer.module, concat(layer.path, '.'), out);
  }
}

Index own_parameters(const Module& module) {
  Index count = 0;
  for (const torch::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    if (parameter.defined()) count += parameter.numel();
  }
  return count;
}

std::string describe(const Module& module, bool in_slot) {
  std::string text = concat("(", escape_controls(type_of(module)), ")");
  if (!module.named_children().is_empty()) text += '/';
  if (in_slot) text += ", in a Slot";
  const Index count = own_parameters(module);
  if (count > 0) text += concat(", ", count, count == 1 ? " parameter" : " parameters");
  return text + "\n";
}

}  // namespace

std::string Layer::name() const { return path.substr(path.rfind('.') + 1); }

std::vector<Layer> layers_of(Module& model) {
  std::vector<Layer> layers;
  append_layers(model, "", layers);
  return layers;
}

std::string type_of(const Module& module) {
  std::string name = c10::demangle(typeid(module).name());
  // Angle and round brackets may contain "::" themselves.
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(') ++depth;
    if (name[i] == '>' || name[i] == ')') --depth;
    if (depth == 0 && name[i] == ':') begin = i + 1;
  }
  name = name.substr(begin);
  name = name.substr(0, name.find('<'));
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::string module_tree(Module& model) {
  std::string text = describe(model, false);
  std::vector<bool> more;  // whether the ancestor at each depth has another child below
  const std::vector<Layer> layers = layers_of(model);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const auto depth = static_cast<std::size_t>(std::ranges::count(layer.path, '.'));
    bool has_next = false;  // a sibling comes before the next layer that is nearer to the root
    for (std::size_t j = i + 1; j < layers.size() && !has_next; ++j) {
      const auto other = static_cast<std::size_t>(std::ranges::count(layers[j].path, '.'));
      if (other < depth) break;
      has_next = other == depth;
    }
    more.resize(depth);
    for (const bool line : more) text += line ? "│   " : "    ";
    more.push_back(has_next);
    text += concat(has_next ? "├── " : "└── ", escape_controls(layer.name()), " ",
                   describe(*layer.module, layer.slot != nullptr));
  }
  return text;
}

}  // namespace hone::nn
