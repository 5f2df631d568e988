// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/model_io/architecture.h"
#include "hone/model_io/json_fields.h"

namespace hone::model_io {

// What the model class and the type in config.json begin with for models with factored layers, or
// layers of different widths, so that other programs do not take them for ordinary ones with
// weights missing: "FactoredLlamaForCausalLM".
inline constexpr std::string_view kFactoredClass = "Factored";
inline constexpr std::string_view kFactoredType = "factored_";
// Widths of each layer, where layers differ.
inline constexpr const char* kLayerHeads = "layer_attention_heads";
inline constexpr const char* kLayerIntermediate = "layer_intermediate_sizes";

// The layers of config.json's "factored_layers": {name: {"mode": "low_rank", "rank": 96}}, the same
// with "projected", or {name:
// {"mode": "sketched", "rank": 64, "terms": 2, "seed": 7}}, where terms may be left out; none
// without the key. Throws Error{CorruptFile} that names the layer for unknown or missing keys and
// values of another type; validate() checks names and ranks.
std::vector<FactoredLayer> read_factored_layers(const JsonFields& config);
Json write_factored_layers(const std::vector<FactoredLayer>& layers);

// Throws Error{Unsupported} that names the first factored layer of a model, if there is one. For
// what works with dense layers only.
void refuse_factored(const Architecture& architecture, const std::string& where);

}  // namespace hone::model_io
