// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/model_io/family/family.h"
#include "hone/model_io/hf_config.h"
#include "tests/model_io/tiny_model.h"

namespace hone::test {

// The least config.json of a tiny model of a family.
inline Json tiny_config(const model_io::Family& family) {
  const model_io::ConfigKeys& keys = family.keys;
  Json json = {{"architectures", Json::array({family.model_class})},
               {"model_type", family.name},
               {"vocab_size", 48},
               {std::string(keys.hidden), 32},
               {std::string(keys.intermediate), 40},
               {std::string(keys.layers), 2},
               {std::string(keys.heads), 4},
               {std::string(keys.context), 64}};
  if (!keys.head_dim.empty()) json[std::string(keys.head_dim)] = 8;
  return json;
}

// A tiny model of each family, and a Llama whose layers have different widths.
inline std::vector<model_io::Architecture> tiny_families() {
  std::vector<model_io::Architecture> all;
  for (const model_io::Family& family : model_io::families()) {
    Json json = tiny_config(family);
    if (family.window != model_io::WindowRule::None) json["sliding_window"] = 8;
    all.push_back(model_io::read_hf_config(json, Json::object(), "config.json"));
  }
  all.push_back(tiny_architecture());
  all.back().layer_heads = {4, 2};
  all.back().layer_intermediate = {24, 40};
  return all;
}

}  // namespace hone::test
