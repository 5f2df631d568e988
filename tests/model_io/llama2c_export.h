// SPDX-License-Identifier: Apache-2.0
// Versions 1 and 2 of llama2.c, written here field by field as the format's export script does.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "hone/model_io/llama2c/layout.h"
#include "tests/model_io/tiny_model.h"

namespace hone::test {

template <class T>
void put_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string llama2c_header(const model_io::Architecture& a, std::int32_t version,
                                  std::int32_t group) {
  std::string out;
  put_raw(out, model_io::kLlama2cMagic);
  put_raw(out, version);
  for (const Index field :
       {a.hidden_size, a.intermediate_size, a.layers, a.heads, a.kv_heads, a.vocab_size, a.context})
    put_raw(out, static_cast<std::int32_t>(field));
  put_raw(out, static_cast<std::uint8_t>(a.tied_embeddings));
  if (version == 2) put_raw(out, group);
  out.resize(256);
  return out;
}

// Every tensor in file order; norms and version 1 as f32, others in groups of i8 with f32 scales.
inline std::string export_model(const TinyModel& model, std::int32_t version, std::size_t group) {
  std::string out = llama2c_header(model.architecture(), version, static_cast<std::int32_t>(group));
  const auto add = [&](const std::string& name) {
    for (const model_io::NamedMatrix& tensor : model.tensors()) {
      if (tensor.name != name) continue;
      const std::vector<float> values = decoded(tensor);
      if (version == 1 || tensor.is_vector) {
        for (const float value : values) put_raw(out, value);
        return;
      }
      for (std::size_t i = 0; i < values.size(); ++i)
        put_raw(out, static_cast<std::int8_t>(std::lround(values[i] * 127)));
      for (std::size_t g = 0; g < values.size() / group; ++g) put_raw(out, 1.0f / 127);
    }
  };
  for (const model_io::Llama2cBlock& block :
       model_io::llama2c_blocks(model.architecture(), false)) {
    for (Index layer = 0; layer < (block.per_layer ? model.architecture().layers : 1); ++layer)
      add(block.per_layer ? model_io::layer_name(layer, block.part) : block.part);
  }
  if (!model.architecture().tied_embeddings) add("lm_head.weight");
  return out;
}

}  // namespace hone::test
