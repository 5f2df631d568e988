// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/model_io/architecture.h"

namespace hone::model_io {

// A tensor of an architecture, under hone's name for it, which is the same in every family and
// format: "model.layers.0.self_attn.q_proj.weight". Vectors have rows = 1.
struct PlannedTensor {
  std::string name;
  Index rows = 0, cols = 0;
  bool is_vector = false;
};

// A product of a decoder layer that a FactoredLayer can replace, and the matrices that it consists
// of in a dense model, by rows.
struct LayerProduct {
  std::string_view name;  // below the layer: "self_attn.qkv_proj"
  Index inputs = 0, outputs = 0;
  bool bias = false;
  std::vector<std::pair<std::string_view, Index>> parts;  // {"self_attn.q_proj", rows}, …
};
// qkv_proj, o_proj, gate_up_proj (up_proj if there is no gate) and down_proj of a layer.
std::vector<LayerProduct> layer_products(const Architecture& architecture, Index layer = 0);

// All tensors of an architecture: the embedding, the layers in order, the final norm, and the
// output matrix unless it is tied; with the traits that have tensors also
//   model.embed_positions.weight [context, hidden]  learned positions
//   <layer>.self_attn.q_norm, .k_norm               of q and k
//   <layer>.self_attn.output_norm, mlp.output_norm  of the results of attention and MLP
// and a bias of every LayerNorm. A factored layer has "<name>.a" and "<name>.b", or "<name>.s1"
// and "<name>.s2", and the model's bias as "<name>.bias"; a projected one has "<name>.a" and the
// weights and biases of its parts.
std::vector<PlannedTensor> plan_tensors(const Architecture& architecture);

// "model.layers.<layer>.<part>"
std::string layer_name(Index layer, std::string_view part);
// The layer that a tensor or product belongs to; -1 for a name that layer_name() does not make.
Index layer_of(std::string_view name);

}  // namespace hone::model_io
