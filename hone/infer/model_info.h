// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/model_io/architecture.h"
#include "hone/model_io/write_model.h"

namespace hone::infer {

// Describes an open model.
struct ModelInfo {
  model_io::Architecture architecture;
  std::string format;  // "huggingface", "hone", "gguf", "llama2.c"
  Index context = 0;   // maximum tokens of a sequence: `wanted_context`, or what fits in the KV
                       // cache
  Index wanted_context = 0;  // EngineOptions::context or the model's own
  Index file_bytes = 0;
  std::vector<std::filesystem::path> files;        // files with the weights
  std::vector<std::filesystem::path> draft_files;  // files of the draft model; empty without one
  // Bytes of the packed matrices, all of which a decode step reads. The embedding matrix counts
  // once where it is also the output matrix, and otherwise not at all.
  Index weight_bytes = 0;
  bool weights_are_mapped = false;  // from the cache of packed weights
  // Matrices that WeightOptions::format did not quantize, and why.
  std::vector<model_io::KeptTensor> kept_weights;
  Index kv_bytes_per_token = 0;
  // The part of kv_bytes_per_token for layers with a window.
  struct Windowed {
    Index window = 0, bytes_per_token = 0;
  };
  std::vector<Windowed> windowed;
  std::string isa;     // the strongest instruction set in use
  std::string kernel;  // micro-kernel of the largest product for one token
  int threads = 1;
  Json generation_defaults;   // from generation_config.json
  std::string chat_template;  // in Jinja; empty if the model has none
};

// The bytes that decoding `tokens` tokens, after `depth` tokens that are in the cache, reads from
// memory. Each token reads all packed matrices, and the keys and values of the tokens before it; in
// layers with a window, only of the tokens in the window. Rows of the embedding, norm gains and
// biases are small and left out.
inline double decode_bytes(const ModelInfo& info, Index depth, Index tokens) {
  const Index read_back = tokens * depth + tokens * (tokens - 1) / 2;
  double bytes = static_cast<double>(tokens) * static_cast<double>(info.weight_bytes) +
                 static_cast<double>(read_back) * static_cast<double>(info.kv_bytes_per_token);
  for (const auto& [window, bytes_per_token] : info.windowed) {
    Index behind = 0;
    for (Index t = depth; t < depth + tokens; ++t) behind += std::max<Index>(0, t - (window - 1));
    bytes -= static_cast<double>(behind) * static_cast<double>(bytes_per_token);
  }
  return bytes;
}

}  // namespace hone::infer
